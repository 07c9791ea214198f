package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestAnExpiredKeyRunsAgain(t *testing.T) {
	t.Parallel()
	for name, amount := range map[string]int64{"the same request": 1, "another request": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, leased(), shortLived()...)
				first, second := created("ch_1"), created("ch_2")
				r.mustRun(t, charge("k", 1), first)
				pass(ttl - time.Nanosecond)
				r.mustReplay(t, charge("k", 1), first.Message)
				pass(time.Nanosecond)
				r.mustRun(t, charge("k", amount), second)
				if o := r.last(t); o.Attempt != 1 || o.Outcome != idempotency.Executed {
					t.Errorf("observed %+v, want attempt 1", o)
				}
				r.mustReplay(t, charge("k", amount), second.Message)
				for _, o := range r.told() {
					if o.Outcome == idempotency.TakenOver {
						t.Error("an expired key counts as taken over")
					}
				}
			})
		})
	}
}

func TestAKeyWhoseLeaseIsOverIsTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, leased(), shortLived()...)
		owner := r.hang(t.Context(), t, charge("k", 1))
		pass(lease - time.Nanosecond)
		r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		pass(time.Nanosecond)
		heirs := []*hung{r.hang(t.Context(), t, charge("k", 1))}
		r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		pass(lease)
		heirs = append(heirs, r.hang(t.Context(), t, charge("k", 1)))
		for i, h := range heirs {
			if h.info.Attempt != i+2 {
				t.Errorf("take-over %d is attempt %d, want %d", i+1, h.info.Attempt, i+2)
			}
			if h.info.DerivedKey("capture") != owner.info.DerivedKey("capture") {
				t.Errorf("attempt %d has another derived key than attempt 1", i+2)
			}
		}
		third := created("ch_3")
		if res := heirs[1].returns(third); res.err != nil || res.replayed {
			t.Errorf("the last attempt got replayed = %v, %v; want its own reply", res.replayed, res.err)
		}
		for _, late := range []*hung{owner, heirs[0]} {
			if res := late.returns(created("late")); res.err != nil || !res.replayed {
				t.Errorf("a late attempt got replayed = %v, %v; want the stored reply", res.replayed, res.err)
			}
		}
		r.mustReplay(t, charge("k", 1), third.Message)
	})
}

func TestAnotherRequestIsRefusedBeforeATakeOver(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.Option{"take-over": nil, "no take-over": {idempotency.WithoutTakeOver()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, leased(), shortLived(opts...)...)
				owner := r.hang(t.Context(), t, charge("k", 1))
				pass(2 * lease)
				r.mustRefuse(t, charge("k", 2), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
				if r.store.takeOvers != 0 {
					t.Errorf("the store was asked to take over %d times", r.store.takeOvers)
				}
				// The owner may settle as long as nobody took over.
				first := created("ch_1")
				if res := owner.returns(first); res.err != nil || res.reply.Message != first.Message {
					t.Errorf("the owner got %v, %v; want its own reply", res.reply, res.err)
				}
				r.mustReplay(t, charge("k", 1), first.Message)
			})
		})
	}
}

func TestWithoutTakeOver(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(*testing.T, *rig){
		"until Forget": func(t *testing.T, r *rig) {
			t.Helper()
			if freed, err := r.Forget(t.Context(), "", "k"); err != nil || !freed {
				t.Fatalf("Forget = %v, %v", freed, err)
			}
		},
		"until the TTL is over": func(*testing.T, *rig) { pass(ttl - lease) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, leased(), shortLived(idempotency.WithoutTakeOver())...)
				owner := r.hang(t.Context(), t, charge("k", 1))
				r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
				pass(lease)
				for range 2 {
					r.mustRefuse(t, charge("k", 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonOutcomeUnknown)
				}
				if o := r.last(t); o.Outcome != idempotency.Failed {
					t.Errorf("observed %v, want failed", o.Outcome)
				}
				free(t, r)
				second := created("ch_2")
				r.mustRun(t, charge("k", 1), second)
				if o := r.last(t); o.Attempt != 1 {
					t.Errorf("observed attempt %d, want 1", o.Attempt)
				}
				if res := owner.returns(created("late")); res.err != nil || !res.replayed {
					t.Errorf("the late owner got replayed = %v, %v; want the stored reply", res.replayed, res.err)
				}
			})
		})
	}
}

func TestALeasedHandlersContextOutlivesItsCallersAndEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type ctxKey struct{}
		r := newRig(t, leased(), shortLived()...)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, 1), lease/2)
		defer cancel()
		start := time.Now()
		h := r.hang(ctx, t, charge("k", 1))
		if h.ctx.Value(ctxKey{}) == nil {
			t.Error("the handler's context has lost its caller's values")
		}
		<-ctx.Done()
		if err := h.ctx.Err(); err != nil {
			t.Fatalf("the handler's context ended with its caller's: %v", err)
		}
		<-h.ctx.Done()
		if ran := time.Since(start); ran != lease-lease/10 {
			t.Errorf("the handler's context ended after %v of a lease of %v", ran, lease)
		}
		if cause := context.Cause(h.ctx); !errors.Is(cause, idempotency.ErrLeaseEnding) {
			t.Errorf("it ended because of %v, want ErrLeaseEnding", cause)
		}
		// There is time left to settle, though its caller is gone.
		first := created("ch_1")
		if res := h.returns(first); res.err != nil || res.replayed {
			t.Errorf("replayed = %v, %v; want the handler's own reply", res.replayed, res.err)
		}
		r.mustReplay(t, charge("k", 1), first.Message)
	})
}

func TestATransactionalHandlersContextEndsWithItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, transactional(), shortLived()...)
		ctx, cancel := context.WithCancel(t.Context())
		h := r.hang(ctx, t, charge("k", 1))
		pass(lease / 2)
		if err := h.ctx.Err(); err != nil {
			t.Errorf("the handler's context ended within the lease: %v", err)
		}
		cancel()
		if err := h.ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("the handler's context goes on without its caller: %v", err)
		}
		first := created("ch_1")
		if res := h.returns(first); res.err != nil || res.replayed {
			t.Errorf("replayed = %v, %v; want the handler's own reply", res.replayed, res.err)
		}
		r.mustReplay(t, charge("k", 1), first.Message)
	})
}

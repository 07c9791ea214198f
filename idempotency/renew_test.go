package idempotency_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// renewing is a store whose renewals are counted, and fail as fault says.
type renewing struct {
	*fake
	mu    sync.Mutex
	sizes []int
	fault func(ctx context.Context) error
}

func (s *renewing) Renew(ctx context.Context, held []store.Held, length time.Duration) ([]store.Token, error) {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(held))
	s.mu.Unlock()
	if s.fault != nil {
		if err := s.fault(ctx); err != nil {
			return nil, err
		}
	}
	return s.fake.Renew(ctx, held, length)
}

func (s *renewing) renewals() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

// newRenewing is a rig whose leases are renewed.
func newRenewing(t *testing.T, fault func(context.Context) error, opts ...idempotency.Option) (*rig, *renewing) {
	t.Helper()
	s := &renewing{fake: leased(), fault: fault}
	opts = append([]idempotency.Option{idempotency.WithLease(lease), idempotency.WithTTL(ttl)}, opts...)
	r := newRig(t, s.fake, opts...)
	g, err := idempotency.New(s, append(opts, idempotency.WithSingleScope(), idempotency.WithObserver(r.observe))...)
	if err != nil {
		t.Fatal(err)
	}
	r.Guard = g
	return r, s
}

func TestALeaseIsRenewedWhileItsHandlerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newRenewing(t, nil)
		h := r.hang(t.Context(), t, charge("k", 1))
		pass(10 * lease)
		if err := h.ctx.Err(); err != nil {
			t.Fatalf("the handler's context ended: %v", context.Cause(h.ctx))
		}
		r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		first := created("ch_1")
		if res := h.returns(first); res.err != nil || res.replayed {
			t.Errorf("replayed = %v, %v; want the handler's own reply", res.replayed, res.err)
		}
		if n := len(s.renewals()); n != 30 && n != 29 {
			t.Errorf("%d renewals in ten leases, want one every third of a lease", n)
		}
		before := len(s.renewals())
		pass(10 * lease)
		if n := len(s.renewals()); n != before {
			t.Errorf("%d renewals of nothing", n-before)
		}
	})
}

func TestAllLiveLeasesAreRenewedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newRenewing(t, nil)
		var running []*hung
		for i := range 20 {
			running = append(running, r.hang(t.Context(), t, charge(string(rune('a'+i)), 1)))
		}
		pass(lease/3 + 1)
		if got := s.renewals(); !slices.Equal(got, []int{20}) {
			t.Errorf("the renewals had %v leases, want one of 20", got)
		}
		for _, h := range running {
			h.returns(created("ch"))
		}
	})
}

// A renewal that fails is tried again, until the lease is nearly over; then the handler is told to stop. One that hangs, as
// where the pool has nothing to give, is given up in time.
func TestALeaseThatCannotBeRenewedEndsItsHandler(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("down") },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, s := newRenewing(t, fault)
				start := time.Now()
				h := r.hang(t.Context(), t, charge("k", 1))
				<-h.ctx.Done()
				if cause := context.Cause(h.ctx); !errors.Is(cause, idempotency.ErrLeaseEnding) {
					t.Errorf("it ended because of %v, want ErrLeaseEnding", cause)
				}
				if ran := time.Since(start); ran != lease-lease/10 {
					t.Errorf("it ended after %v of a lease of %v", ran, lease)
				}
				if n := len(s.renewals()); n < 2 {
					t.Errorf("%d renewals were tried, want it tried again", n)
				}
				h.returns(created("ch_1"))
				if err := r.Close(t.Context()); err != nil { // waits for the renewal that is under way
					t.Error(err)
				}
			})
		})
	}
}

func TestALeaseThatIsLostEndsItsHandlerAndItsReplyIsNotGiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRenewing(t, nil)
		h := r.hang(t.Context(), t, charge("k", 1))
		if _, err := r.Forget(t.Context(), "", "k"); err != nil {
			t.Fatal(err)
		}
		second := created("ch_2")
		r.mustRun(t, charge("k", 1), second)
		<-h.ctx.Done()
		if cause := context.Cause(h.ctx); !errors.Is(cause, idempotency.ErrLeaseLost) {
			t.Errorf("it ended because of %v, want ErrLeaseLost", cause)
		}
		if res := h.returns(created("ch_1")); !res.replayed || res.reply.Message == nil {
			t.Errorf("the late attempt's caller got %v, %v; want the stored reply", res.reply, res.err)
		}
	})
}

func TestAHandlerThatRunsOnHasALimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts  []idempotency.Option
		limit time.Duration
	}{
		"the default":     {nil, idempotency.DefaultRunLimit},
		"one that is set": {[]idempotency.Option{idempotency.WithDetached(7 * lease)}, 7 * lease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRenewing(t, nil, test.opts...)
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				h := r.hang(ctx, t, charge("k", 1))
				cancel()
				<-h.ctx.Done()
				if cause := context.Cause(h.ctx); !errors.Is(cause, idempotency.ErrRunLimit) || time.Since(start) != test.limit {
					t.Errorf("it ended because of %v after %v, want ErrRunLimit after %v", cause, time.Since(start), test.limit)
				}
				h.returns(created("ch_1"))
			})
		})
	}
}

func TestAttachedAndDetachedHandlers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		store func() *fake
		opts  []idempotency.Option
		ends  bool
	}{
		"leased":                  {leased, nil, false},
		"leased, attached":        {leased, []idempotency.Option{idempotency.WithAttached()}, true},
		"transactional":           {transactional, nil, true},
		"transactional, detached": {transactional, []idempotency.Option{idempotency.WithDetached(0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.store(), test.opts...)
			ctx, cancel := context.WithCancel(t.Context())
			h := r.hang(ctx, t, charge("k", 1))
			cancel()
			if ends := h.ctx.Err() != nil; ends != test.ends {
				t.Errorf("the handler's context ended with its caller's: %v, want %v", ends, test.ends)
			}
			h.returns(created("ch_1"))
		})
	}
}

func TestATransactionLastsALeaseAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, transactional(), shortLived()...)
		start := time.Now()
		h := r.hang(t.Context(), t, charge("k", 1))
		<-h.ctx.Done()
		if cause := context.Cause(h.ctx); !errors.Is(cause, idempotency.ErrLeaseEnding) || time.Since(start) > lease {
			t.Errorf("it ended because of %v after %v", cause, time.Since(start))
		}
		h.returns(created("ch_1"))
	})
}

func TestALeaseIsNoLongerThanTheCallsDeadlineNeeds(t *testing.T) {
	t.Parallel()
	attached := []idempotency.Option{idempotency.WithAttached(), idempotency.WithoutRenewal()}
	for name, test := range map[string]struct {
		opts []idempotency.Option
		left time.Duration
		want time.Duration
	}{
		"attached, not renewed": {attached, 900 * time.Millisecond, time.Second},
		"a deadline far away":   {attached, time.Hour, idempotency.DefaultLease},
		"detached":              {[]idempotency.Option{idempotency.WithoutRenewal()}, 900 * time.Millisecond, idempotency.DefaultLease},
		"attached, but renewed": {[]idempotency.Option{idempotency.WithAttached()}, 900 * time.Millisecond, idempotency.DefaultLease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, leased(), test.opts...)
				ctx, cancel := context.WithTimeout(t.Context(), test.left)
				defer cancel()
				h := handler{reply: created("ch_1")}
				if res := r.do(ctx, charge("k", 1), h.run); res.err != nil {
					t.Fatal(res.err)
				}
				if got := r.store.asked()[0].Lease; got != test.want {
					t.Errorf("the lease is %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestACallWhoseTimeIsOverIsRefusedBeforeItsClaim(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]time.Duration{"past": -time.Second, "now": 0, "next to nothing": 900 * time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, leased(), idempotency.WithAttached(), idempotency.WithoutRenewal())
				ctx, cancel := context.WithTimeout(t.Context(), left)
				defer cancel()
				r.do(ctx, charge("k", 1), neverRuns(t)).requireRefused(t, code.Code_DEADLINE_EXCEEDED, "")
				if n := len(r.store.asked()); n != 0 {
					t.Errorf("the store was asked %d times", n)
				}
			})
		})
	}
}

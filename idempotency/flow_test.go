package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func TestTheFirstCallRunsAndARetryIsAnsweredFromTheStore(t *testing.T) {
	t.Parallel()
	for name, newStore := range eachMode() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, newStore())
			first := created("ch_1")
			r.mustRun(t, charge("k", 1), first)
			for range 3 {
				r.mustReplay(t, charge("k", 1), first.Message)
			}
		})
	}
}

func TestAnotherKeyIsAnotherCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	first, second := created("ch_1"), created("ch_2")
	r.mustRun(t, charge("k", 1), first)
	r.mustRun(t, charge("K", 1), second)
	r.mustReplay(t, charge("k", 1), first.Message)
	r.mustReplay(t, charge("K", 1), second.Message)
}

func TestAKeyUsedWithAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	otherProcedure := charge("k", 1)
	otherProcedure.Procedure = refundCharge
	otherType := charge("k", 1)
	otherType.Request = &chargesv1.RefundChargeRequest{Id: "ch_1"}
	for name, c := range map[string]idempotency.Call{
		"another amount":    charge("k", 2),
		"another procedure": otherProcedure,
		"another type":      otherType,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for state, first := range map[string]idempotency.Reply{
				"completed": created("ch_1"),
				"an error":  failed(code.Code_NOT_FOUND),
				"not kept":  {Message: created("ch_1").Message, Unencodable: errors.New("no message")},
			} {
				r := newRig(t, leased())
				r.mustRun(t, charge("k", 1), first)
				e := r.refusal(t, c, code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
				if strings.Contains(e.Error(), "ch_1") {
					t.Errorf("%s: the refusal tells of the other reply: %v", state, e)
				}
			}
		})
	}
}

func TestAKeyInProgress(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	first := created("ch_1")
	h := r.hang(t.Context(), t, charge("k", 1))
	e := r.refusal(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
	if d := retryDelay(t, e); d != time.Second || e.Metadata["retry-after"][0] != "1" {
		t.Errorf("told to come back in %v, %v, want 1s", d, e.Metadata)
	}
	r.mustRefuse(t, charge("k", 2), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
	if res := h.returns(first); res.err != nil || res.reply.Message != first.Message {
		t.Errorf("the first call got %v, %v; want its own reply", res.reply, res.err)
	}
	r.mustReplay(t, charge("k", 1), first.Message)
}

func TestAKeyHeldOutOfSightIsInProgressForEveryRequest(t *testing.T) {
	t.Parallel()
	s := transactional()
	s.finds = func(c store.Claim) store.Found { return store.Found{ID: c.ID, State: store.InProgress} }
	r := newRig(t, s)
	r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
	r.mustRefuse(t, charge("k", 2), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
	if n := len(s.asked()); n != 2 {
		t.Errorf("two calls asked the store %d times", n)
	}
}

func TestOneRunOf64Callers(t *testing.T) {
	t.Parallel()
	const callers = 64
	r := newRig(t, leased())
	reply := created("ch_1")
	var runs, refused atomic.Int32
	allRefused := make(chan struct{})
	run := func(context.Context) idempotency.Reply {
		runs.Add(1)
		<-allRefused
		return reply
	}
	results := make([]result, callers)
	everyone := func() {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				results[i] = r.do(t.Context(), charge("k", 1), run)
				if results[i].err != nil && refused.Add(1) == callers-1 {
					close(allRefused)
				}
			})
		}
		wg.Wait()
	}
	everyone()
	for _, res := range results {
		if res.err != nil {
			res.requireRefused(t, code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		}
	}
	everyone()
	for _, res := range results {
		if res.err != nil || !res.replayed || !proto.Equal(res.reply.Message, reply.Message) {
			t.Fatalf("a retry got %v, replayed = %v, %v; want the first call's reply", res.reply, res.replayed, res.err)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestARowThatVanishedIsClaimedAgain(t *testing.T) {
	t.Parallel()
	s := leased()
	s.finds = func(c store.Claim) store.Found { return store.Found{ID: c.ID} }
	s.onClaim = func(context.Context) error {
		if len(s.asked()) == 2 {
			s.finds = nil
		}
		return nil
	}
	r := newRig(t, s)
	r.mustRun(t, charge("k", 1), created("ch_1"))
	asked := s.asked()
	if len(asked) != 2 || asked[0].Token == asked[1].Token {
		t.Errorf("claimed %d times, want twice with two tokens: %v", len(asked), asked)
	}
}

func TestARowThatGoesOnVanishingIsInProgress(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]store.Found{
		"absent":     {},
		"expired":    {State: store.Completed, Token: store.NewToken(), Attempt: 1, Expired: true},
		"lease over": {State: store.InProgress, Token: store.NewToken(), Attempt: 1, LeaseLeft: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := leased()
			s.finds = func(c store.Claim) store.Found {
				f := found
				f.ID, f.RequestHash = c.ID, c.RequestHash
				return f
			}
			r := newRig(t, s)
			e := r.refusal(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
			if d := retryDelay(t, e); d < 0 {
				t.Errorf("told to come back in %v", d)
			}
			if n := len(s.asked()); n != 3 {
				t.Errorf("the store was asked %d times, want 3", n)
			}
		})
	}
}

func TestForgetFreesAKey(t *testing.T) {
	t.Parallel()
	scope := strings.Repeat("tenant", 100)
	r := newRig(t, leased(), idempotency.WithScope(func(context.Context, idempotency.Call) (string, error) { return scope, nil }))
	r.mustRun(t, charge("k", 1), created("ch_1"))
	for _, c := range []struct {
		scope, key string
		want       bool
	}{{"", "k", false}, {scope, "K", false}, {scope, "k", true}, {scope, "k", false}} {
		if got, err := r.Forget(t.Context(), c.scope, c.key); err != nil || got != c.want {
			t.Errorf("Forget(%.9q…, %q) = %v, %v; want %v", c.scope, c.key, got, err, c.want)
		}
	}
	r.mustRun(t, charge("k", 2), created("ch_2"))
}

package main

import (
	"context"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestARetryGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			first, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_ok")))
			if err != nil {
				t.Fatal(err)
			}
			retry, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_ok")))
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(first.Msg, retry.Msg) {
				t.Errorf("the retry got %v, and the first call %v", retry.Msg, first.Msg)
			}
			if isReplay(first.Header()) || !isReplay(retry.Header()) {
				t.Errorf("the headers are %v and %v; only the second is a replay's", first.Header(), retry.Header())
			}
			got := r.wantCharges(t, first.Msg.GetCharge().GetId())
			if !proto.Equal(got[0], first.Msg.GetCharge()) {
				t.Errorf("the ledger has %v, and the answer was %v", got[0], first.Msg.GetCharge())
			}
		})
	}
}

func TestCallsWithoutAKeyAreAllCharged(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			first, _ := r.mustCharge(t, "", "tok_ok")
			second, _ := r.mustCharge(t, "", "tok_ok")
			r.wantCharges(t, first, second)
		})
	}
}

func TestAnotherRequestUnderAKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			id, _ := r.mustCharge(t, "k", "tok_ok")
			other := charge("tok_ok")
			other.Amount++
			_, err := r.CreateCharge(t.Context(), keyed("k", other))
			wantError(t, err, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
			r.wantCharges(t, id)
		})
	}
}

func TestADeclineIsReplayedWithItsDetail(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			for call, replay := range []bool{false, true} {
				_, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_declined")))
				wantError(t, err, connect.CodeFailedPrecondition, "")
				e := connectError(t, err)
				if e.Message() != "the card was declined" || len(e.Details()) != 1 {
					t.Fatalf("call %d: got %v with %d details", call, e, len(e.Details()))
				}
				detail, err := e.Details()[0].Value()
				if err != nil {
					t.Fatal(err)
				}
				if want := (&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"}); !proto.Equal(detail, want) {
					t.Errorf("call %d: the detail is %v, want %v", call, detail, want)
				}
				if isReplay(e.Meta()) != replay {
					t.Errorf("call %d: a replay: %v, want %v", call, !replay, replay)
				}
			}
			r.wantCharges(t)
		})
	}
}

func TestUnavailableOnceIsReleasedAndRuns(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			_, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_unavailable_once")))
			wantError(t, err, connect.CodeUnavailable, "")
			id, replayed := r.mustCharge(t, "k", "tok_unavailable_once")
			if replayed {
				t.Error("the second call was a replay")
			}
			again, replayed := r.mustCharge(t, "k", "tok_unavailable_once")
			if again != id || !replayed {
				t.Errorf("the third call got %s, a replay: %v; want a replay of %s", again, replayed, id)
			}
			r.wantCharges(t, id)
		})
	}
}

func TestSixtyFourCallersAreOneCharge(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			var mu sync.Mutex
			var ids []string
			var refusals []error
			var callers sync.WaitGroup
			for range 64 {
				callers.Go(func() {
					res, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_ok")))
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						refusals = append(refusals, err)
					} else {
						ids = append(ids, res.Msg.GetCharge().GetId())
					}
				})
			}
			callers.Wait()
			for _, err := range refusals {
				wantError(t, err, connect.CodeAborted, idempotency.ReasonKeyInProgress)
			}
			if len(ids) == 0 {
				t.Fatal("nobody was answered")
			}
			for _, id := range ids {
				if id != ids[0] {
					t.Errorf("one got the charge %s, another %s", ids[0], id)
				}
			}
			r.wantCharges(t, ids[0])
		})
	}
}

func TestARetryMeetsTheFirstCallInProgress(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			first := r.callSlow(t, t.Context())
			_, err := r.CreateCharge(t.Context(), keyed("k", charge("tok_slow")))
			wantError(t, err, connect.CodeAborted, idempotency.ReasonKeyInProgress)
			r.slow.goOn()
			got := receive(t, first, "the first call's answer")
			if got.err != nil {
				t.Fatal(got.err)
			}
			if again, replayed := r.mustCharge(t, "k", "tok_slow"); again != got.id || !replayed {
				t.Errorf("got %s, a replay: %v; want a replay of %s", again, replayed, got.id)
			}
			r.wantCharges(t, got.id)
		})
	}
}

// answer is what a call gets.
type answer struct {
	id  string
	err error
}

// callSlow calls tok_slow, and returns once the call runs.
func (r *rig) callSlow(t *testing.T, ctx context.Context) <-chan answer { //nolint:revive // t first, as helpers have it
	t.Helper()
	got := make(chan answer, 1)
	go func() {
		res, err := r.CreateCharge(ctx, keyed("k", charge("tok_slow")))
		if err != nil {
			got <- answer{err: err}
			return
		}
		got <- answer{id: res.Msg.GetCharge().GetId()}
	}()
	receive(t, r.slow.entered, "the call to run")
	return got
}

// hangUp calls tok_slow and goes away while it runs.
func (r *rig) hangUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got := r.callSlow(t, ctx)
	cancel()
	wantError(t, receive(t, got, "the client to go").err, connect.CodeCanceled, "")
}

func TestALeasedCallRunsOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	for _, in := range []kind{inLeased, inMemory} {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			r.hangUp(t)
			r.slow.goOn()
			if got := receive(t, r.outcomes, "the call's outcome"); got != idempotency.Executed {
				t.Fatalf("the call was %s", got)
			}
			id, replayed := r.mustCharge(t, "k", "tok_slow")
			if !replayed {
				t.Error("the retry ran again")
			}
			r.wantCharges(t, id)
		})
	}
}

func TestATransactionalCallIsUndoneWithItsClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, inTransactional)
	r.hangUp(t)
	if got := receive(t, r.outcomes, "the call's outcome"); got != idempotency.Released {
		t.Fatalf("the call was %s", got)
	}
	r.slow.goOn()
	id, replayed := r.mustCharge(t, "k", "tok_slow")
	if replayed {
		t.Error("the retry was a replay")
	}
	r.wantCharges(t, id)
}

func TestARefundIsDoneOnce(t *testing.T) {
	t.Parallel()
	for _, in := range everywhere() {
		t.Run(string(in), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, in)
			id, _ := r.mustCharge(t, "charge", "tok_ok")
			refund := &chargesv1.RefundChargeRequest{Id: id}
			first, err := r.RefundCharge(t.Context(), keyed("refund", refund))
			if err != nil {
				t.Fatal(err)
			}
			if got := first.Msg.GetCharge(); got.GetStatus() != chargesv1.ChargeStatus_CHARGE_STATUS_REFUNDED || got.GetId() != id {
				t.Errorf("got %v", got)
			}
			retry, err := r.RefundCharge(t.Context(), keyed("refund", refund))
			if err != nil {
				t.Fatal(err)
			}
			if !isReplay(retry.Header()) || !proto.Equal(first.Msg, retry.Msg) {
				t.Errorf("the retry got %v with %v, want a replay of %v", retry.Msg, retry.Header(), first.Msg)
			}
			_, err = r.RefundCharge(t.Context(), keyed("another-refund", refund))
			wantError(t, err, connect.CodeFailedPrecondition, "")
			if got := r.wantCharges(t, id); !proto.Equal(got[0], first.Msg.GetCharge()) {
				t.Errorf("the ledger has %v, want %v", got[0], first.Msg.GetCharge())
			}
		})
	}
}

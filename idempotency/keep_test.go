package idempotency_test

import (
	"context"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestWhichCodesAreKept(t *testing.T) {
	t.Parallel()
	kept := map[code.Code]bool{
		code.Code_INVALID_ARGUMENT:    true,
		code.Code_NOT_FOUND:           true,
		code.Code_ALREADY_EXISTS:      true,
		code.Code_PERMISSION_DENIED:   true,
		code.Code_FAILED_PRECONDITION: true,
		code.Code_OUT_OF_RANGE:        true,
	}
	codes := []code.Code{99} // one that nobody knows
	for c := range code.Code_name {
		codes = append(codes, code.Code(c)) // OK among them: an error whose code says OK counts as UNKNOWN
	}
	for mode, newStore := range eachMode() {
		for _, c := range codes {
			t.Run(mode+"/"+idempotency.CodeName(c), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, newStore())
				reply := failed(c)
				r.mustRun(t, charge("k", 1), reply)
				if kept[c] {
					mustReplayError(t, r, charge("k", 1), reply.Error)
					return
				}
				if o := r.last(t); o.Outcome != idempotency.Released || o.Err != nil {
					t.Errorf("observed %v, %v; want released", o.Outcome, o.Err)
				}
				if n := len(r.store.completed()); n != 0 {
					t.Errorf("it was completed %d times", n)
				}
				r.mustRun(t, charge("k", 1), created("ch_1"))
			})
		}
	}
}

// mustReplayError fails t unless the call is answered with want from the store.
func mustReplayError(t *testing.T, r *rig, c idempotency.Call, want *idempotency.Error) {
	t.Helper()
	res := r.do(t.Context(), c, neverRuns(t))
	if res.err != nil || !res.replayed || res.reply.Error == nil {
		t.Fatalf("got %v, replayed = %v, %v; want %v replayed", res.reply, res.replayed, res.err, want)
	}
	if got := res.reply.Error; got.Code != want.Code || got.Message != want.Message {
		t.Fatalf("replayed %v, want %v", got, want)
	}
}

func TestWithKeepReplacesTheRule(t *testing.T) {
	t.Parallel()
	type ctxKey struct{}
	ctx := context.WithValue(t.Context(), ctxKey{}, "the call's own")
	var asked []idempotency.Reply
	r := newRig(t, leased(), idempotency.WithKeep(func(got context.Context, c idempotency.Call, reply idempotency.Reply) bool {
		if got.Value(ctxKey{}) == nil || c.Procedure != createCharge {
			t.Errorf("asked about %v, within another context: %v", c, got)
		}
		asked = append(asked, reply)
		return reply.Code() == code.Code_UNAVAILABLE
	}))
	unavailable := failed(code.Code_UNAVAILABLE)
	if res := r.do(ctx, charge("kept", 1), (&handler{reply: unavailable}).run); res.err != nil {
		t.Fatal(res.err)
	}
	mustReplayError(t, r, charge("kept", 1), unavailable.Error)

	first := created("ch_1")
	for range 2 {
		if res := r.do(ctx, charge("released", 1), (&handler{reply: first}).run); res.err != nil || res.replayed {
			t.Fatalf("replayed = %v, %v; want a run", res.replayed, res.err)
		}
	}
	if len(asked) != 3 || asked[0].Error != unavailable.Error || !proto.Equal(asked[1].Message, first.Message) {
		t.Errorf("asked about %v, want each run's reply", asked)
	}
}

func TestAnErrorThatSaysOKIsReplayedAsUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true }))
	r.mustRun(t, charge("k", 1), failed(code.Code_OK))
	mustReplayError(t, r, charge("k", 1), failed(code.Code_UNKNOWN).Error)
}

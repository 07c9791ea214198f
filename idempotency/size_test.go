package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// replySizes has replies with the size that the limit counts.
func replySizes() map[string]struct {
	reply idempotency.Reply
	size  int
} {
	message := created("ch_1")
	declined := failed(code.Code_FAILED_PRECONDITION)
	declined.Error.Details = []*anypb.Any{{TypeUrl: "type.googleapis.com/charges.v1.DeclineDetail", Value: []byte("\x0a\x01x")}}
	stored := &idempotencyv1.Error{
		Code: int32(declined.Error.Code), Message: []byte(declined.Error.Message), Details: declined.Error.Details,
	}
	return map[string]struct {
		reply idempotency.Reply
		size  int
	}{
		"a message": {withMetadata(message), proto.Size(message.Message)},
		"an error":  {withMetadata(declined), proto.Size(stored)},
	}
}

func TestAReplyOfExactlyTheLimitIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range replySizes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), idempotency.WithMaxReplySize(c.size))
			r.mustRun(t, charge("k", 1), c.reply)
			res := r.do(t.Context(), charge("k", 1), neverRuns(t))
			if res.err != nil || !res.replayed {
				t.Fatalf("replayed = %v, %v", res.replayed, res.err)
			}
			requireSame(t, res.reply, c.reply)
		})
	}
}

func TestAReplyOverTheLimitIsNotKept(t *testing.T) {
	t.Parallel()
	for name, c := range replySizes() {
		for mode, newStore := range eachMode() {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, newStore(), idempotency.WithMaxReplySize(c.size-1))
				r.mustRun(t, charge("k", 1), c.reply)
				requireNotKept(t, r, c.reply.Code())
				if err := r.last(t).Err; err == nil || !strings.Contains(err.Error(), "too large") {
					t.Errorf("observed the error %v, want it to say why", err)
				}
				r.mustRefuse(t, charge("k", 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
				if o := r.last(t); o.Outcome != idempotency.NotKept || o.Attempt != 0 {
					t.Errorf("the retry is observed as %+v, want not kept", o)
				}
			})
		}
	}
}

// requireNotKept fails t unless the one completion and the last event say that the reply was not kept.
func requireNotKept(t *testing.T, r *rig, want code.Code) {
	t.Helper()
	if o := r.last(t); o.Outcome != idempotency.NotKept || o.Attempt != 1 {
		t.Errorf("observed %+v, want not kept", o)
	}
	done := r.store.completed()
	if len(done) != 1 {
		t.Fatalf("completed %d times", len(done))
	}
	if got := done[0].record; got.State != store.NotKept || got.Code != want || got.Reply != nil || got.Readable != nil {
		t.Errorf("stored %+v, want not kept, code %v, and nothing of the reply", got, want)
	}
}

func TestALimitOfZeroKeepsEmptyMessagesAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithMaxReplySize(0))
	empty := idempotency.Reply{Message: &chargesv1.CreateChargeResponse{}}
	r.mustRun(t, charge("empty", 1), empty)
	r.mustReplay(t, charge("empty", 1), empty.Message)
	for _, reply := range []idempotency.Reply{created("ch_1"), {Error: &idempotency.Error{Code: code.Code_NOT_FOUND}}} {
		key := reply.Code().String()
		r.mustRun(t, charge(key, 1), reply)
		r.mustRefuse(t, charge(key, 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
	}
}

func TestTheDefaultLimitIsOneMebibyte(t *testing.T) {
	t.Parallel()
	sized := func(want int) idempotency.Reply {
		reply := created(strings.Repeat("x", want))
		over := proto.Size(reply.Message) - want
		reply = created(strings.Repeat("x", want-over))
		if got := proto.Size(reply.Message); got != want {
			t.Fatalf("made a message of %d bytes, not %d", got, want)
		}
		return reply
	}
	r := newRig(t, leased())
	largest := sized(1 << 20)
	r.mustRun(t, charge("largest", 1), largest)
	r.mustReplay(t, charge("largest", 1), largest.Message)
	r.mustRun(t, charge("over", 1), sized(1<<20+1))
	r.mustRefuse(t, charge("over", 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
}

// unencodable are replies that cannot be stored.
func unencodable() map[string]idempotency.Reply {
	badDetail := failed(code.Code_NOT_FOUND)
	badDetail.Error.Details = []*anypb.Any{{TypeUrl: "\xff"}}
	return map[string]idempotency.Reply{
		"text that is no UTF-8":     created("\xff"),
		"what is no message":        {Unencodable: errors.New("the response is an int")},
		"a detail's type, no UTF-8": badDetail,
	}
}

func TestAReplyThatCannotBeEncodedIsNotKeptOnALeasedStore(t *testing.T) {
	t.Parallel()
	for name, reply := range unencodable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased())
			r.mustRun(t, charge("k", 1), reply)
			requireNotKept(t, r, reply.Code())
			if err := r.last(t).Err; err == nil {
				t.Error("no error was observed")
			}
			r.mustRefuse(t, charge("k", 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
		})
	}
}

func TestAReplyThatCannotBeEncodedIsUndoneOnATransactionalStore(t *testing.T) {
	t.Parallel()
	for name, reply := range unencodable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, transactional())
			h := handler{reply: reply}
			e := r.do(t.Context(), charge("k", 1), h.run).refusal(t, code.Code_INTERNAL, idempotency.ReasonReplyUnencodable)
			if e.Cause == nil || h.runs.Load() != 1 {
				t.Errorf("ran %d times, the cause is %v", h.runs.Load(), e.Cause)
			}
			if o := r.last(t); o.Outcome != idempotency.Failed || o.Attempt != 1 {
				t.Errorf("observed %+v, want failed", o)
			}
			if done, released := len(r.store.completed()), r.store.released(); done != 0 || released != 1 {
				t.Errorf("completed %d times and released %d times, want released alone", done, released)
			}
			r.mustRun(t, charge("k", 1), created("ch_1"))
		})
	}
}

func TestAReplyThatCannotBeEncodedNorUndoneIsLogged(t *testing.T) {
	t.Parallel()
	s := transactional()
	s.onRelease = func(context.Context, int) error { return errDown() }
	r := newRig(t, s)
	r.do(t.Context(), charge(secretKey, 1), (&handler{reply: created("\xff")}).run).
		requireRefused(t, code.Code_INTERNAL, idempotency.ReasonReplyUnencodable)
	if log := r.logged(); !strings.Contains(log, errDown().Error()) || strings.Contains(log, secretKey) {
		t.Errorf("the log has the key, or has not the fault: %s", log)
	}
}

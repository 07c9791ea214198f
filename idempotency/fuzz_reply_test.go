package idempotency_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// FuzzReply stores a reply and replays it: nothing of it may be lost.
func FuzzReply(f *testing.F) {
	f.Add("ch_1", int64(1299), []byte{0xf8, 0x07, 0x01}, int32(0), "", []byte(nil), "x-cost", "4")
	f.Add("", int64(0), []byte(nil), int32(9), "declined\x00\xff", []byte("\x0a\x01x"), "x-bin", "AP8")
	f.Add("\xff", int64(-1), []byte{0xff}, int32(99), "é", []byte{1}, "", "\xff\n")
	f.Fuzz(func(t *testing.T, id string, amount int64, unknown []byte, c int32, text string, detail []byte, name, value string) {
		if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x7f }) {
			return // no name of a header
		}
		message := &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: id, Amount: amount}}
		received := new(chargesv1.ListChargesRequest) // it has no fields: all are unknown
		if proto.Unmarshal(unknown, received) == nil {
			message.ProtoReflect().SetUnknown(received.ProtoReflect().GetUnknown())
		}
		first := idempotency.Reply{Message: message, Header: idempotency.Metadata{name: {value, value}}}
		if c != 0 {
			first.Message = nil
			first.Error = &idempotency.Error{
				Code: code.Code(c), Message: text, Details: []*anypb.Any{{TypeUrl: "type.googleapis.com/x.Y", Value: detail}},
				Metadata: idempotency.Metadata{name: {value}},
			}
		}
		keep := idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true })
		r := newRig(t, leased(), keep)
		r.mustRun(t, charge("k", 1), first)
		res := r.do(t.Context(), charge("k", 1), neverRuns(t))
		if c == 0 && !utf8.ValidString(id) {
			res.requireRefused(t, code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
			return
		}
		if res.err != nil || !res.replayed {
			t.Fatalf("replayed = %v, %v", res.replayed, res.err)
		}
		if c == 0 && !proto.Equal(res.reply.Message, message) {
			t.Errorf("the message is %v, want %v", res.reply.Message, message)
		}
		if e := res.reply.Error; c != 0 && (e.Code != first.Error.Code || e.Message != text || string(e.Details[0].Value) != string(detail)) {
			t.Errorf("the error is %v, want %v", e, first.Error)
		}
		for kept, values := range res.reply.Header {
			if kept != strings.ToLower(name) || !slices.Equal(values, []string{value, value}) {
				t.Errorf("the header is %q: %q, want %q: %q twice", kept, values, name, value)
			}
		}
	})
}

package idempotency_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestTheReadableReply(t *testing.T) {
	t.Parallel()
	decline, err := anypb.New(&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	noJSON, err := anypb.New(&anypb.Any{TypeUrl: "nobody.example/knows.this.Type"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reply idempotency.Reply
		want  string
	}{
		"a message": {
			idempotency.Reply{Message: &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{
				Id: "ch_1", Amount: 1299, Status: chargesv1.ChargeStatus_CHARGE_STATUS_CAPTURED,
			}}},
			`{"charge":{"id":"ch_1","amount":"1299","status":"CHARGE_STATUS_CAPTURED"}}`,
		},
		"an error": {
			idempotency.Reply{Error: &idempotency.Error{Code: code.Code_NOT_FOUND, Message: `no "card"`}},
			`{"code":"not_found","message":"no \"card\""}`,
		},
		"an error without a text": {
			idempotency.Reply{Error: &idempotency.Error{Code: code.Code_OUT_OF_RANGE}},
			`{"code":"out_of_range"}`,
		},
		"an error with details": {
			idempotency.Reply{Error: &idempotency.Error{
				Code: code.Code_FAILED_PRECONDITION, Message: "declined",
				Details: []*anypb.Any{
					decline,
					{TypeUrl: "nobody.example/knows.this.Type", Value: []byte{0xff}},
					noJSON,
					{TypeUrl: decline.TypeUrl, Value: []byte{0xff}},
				},
			}},
			`{"code":"failed_precondition","message":"declined","details":[
				{"type":"charges.v1.DeclineDetail","value":"ChJpbnN1ZmZpY2llbnRfZnVuZHM","debug":{"declineCode":"insufficient_funds"}},
				{"type":"knows.this.Type","value":"/w"},
				{"type":"google.protobuf.Any","value":"Ch5ub2JvZHkuZXhhbXBsZS9rbm93cy50aGlzLlR5cGU"},
				{"type":"charges.v1.DeclineDetail","value":"/w"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased())
			r.mustRun(t, charge("k", 1), c.reply)
			readable := r.store.completed()[0].record.Readable
			if readable == nil {
				t.Fatal("there is no readable form")
			}
			got, err := readable.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(compact(t, got), compact(t, []byte(c.want))) {
				t.Errorf("it reads %s, want %s", got, c.want)
			}
		})
	}
}

// compact makes equal texts of equal JSON: protojson's blanks differ from build to build.
func compact(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAReplyThatJSONCannotCarryIsKeptAllTheSame(t *testing.T) {
	t.Parallel()
	reply := idempotency.Reply{Message: &anypb.Any{TypeUrl: "nobody.example/knows.this.Type", Value: []byte{0xff}}}
	r := newRig(t, leased())
	r.mustRun(t, charge("k", 1), reply)
	if got, err := r.store.completed()[0].record.Readable.MarshalJSON(); err == nil {
		t.Errorf("it reads %s, want an error for the store", got)
	}
	r.mustReplay(t, charge("k", 1), reply.Message)
}

func TestAReplyWithoutAMessageHasNoReadableForm(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	r.mustRun(t, charge("k", 1), idempotency.Reply{})
	if got := r.store.completed()[0].record.Readable; got != nil {
		t.Errorf("its readable form is %v", got)
	}
}

func TestCodeName(t *testing.T) {
	t.Parallel()
	for c, want := range map[code.Code]string{
		code.Code_OK:                  "ok",
		code.Code_CANCELLED:           "canceled",
		code.Code_UNKNOWN:             "unknown",
		code.Code_INVALID_ARGUMENT:    "invalid_argument",
		code.Code_DEADLINE_EXCEEDED:   "deadline_exceeded",
		code.Code_NOT_FOUND:           "not_found",
		code.Code_ALREADY_EXISTS:      "already_exists",
		code.Code_PERMISSION_DENIED:   "permission_denied",
		code.Code_RESOURCE_EXHAUSTED:  "resource_exhausted",
		code.Code_FAILED_PRECONDITION: "failed_precondition",
		code.Code_ABORTED:             "aborted",
		code.Code_OUT_OF_RANGE:        "out_of_range",
		code.Code_UNIMPLEMENTED:       "unimplemented",
		code.Code_INTERNAL:            "internal",
		code.Code_UNAVAILABLE:         "unavailable",
		code.Code_DATA_LOSS:           "data_loss",
		code.Code_UNAUTHENTICATED:     "unauthenticated",
		17:                            "code_17",
		-1:                            "code_-1",
	} {
		if got := idempotency.CodeName(c); got != want {
			t.Errorf("CodeName(%d) = %q, want %q", c, got, want)
		}
	}
}

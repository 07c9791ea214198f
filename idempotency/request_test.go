package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// fieldCharge is a call with a key in its description, and another in its metadata where header is not empty.
func fieldCharge(field, header string) idempotency.Call {
	c := idempotency.Call{Procedure: createCharge, Request: &chargesv1.CreateChargeRequest{Amount: 1, Description: field}}
	if header != "" {
		c.Keys = []string{header}
	}
	return c
}

func TestAKeyFromAField(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call   idempotency.Call
		key    string // as it is claimed; "" where the call passes by
		reason string
	}{
		"the field alone":                {call: fieldCharge("k-1", ""), key: "k-1"},
		"the field in quotes":            {call: fieldCharge(`"k-1"`, ""), key: "k-1"},
		"the metadata alone":             {call: fieldCharge("", "k-2"), key: "k-2"},
		"both, the same":                 {call: fieldCharge("k-1", `"k-1"`), key: "k-1"},
		"both, disagreeing":              {call: fieldCharge("k-1", "k-2"), reason: idempotency.ReasonKeyInvalid},
		"a field that is no key":         {call: fieldCharge("k 1", ""), reason: idempotency.ReasonKeyInvalid},
		"metadata that is no key":        {call: fieldCharge("k-1", "k 2"), reason: idempotency.ReasonKeyInvalid},
		"neither":                        {call: fieldCharge("", "")},
		"a request without such a field": {call: idempotency.Call{Procedure: createCharge, Request: &chargesv1.GetChargeRequest{Id: "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), idempotency.WithKeyField("description"))
			if test.reason != "" {
				r.mustRefuse(t, test.call, code.Code_INVALID_ARGUMENT, test.reason)
				return
			}
			if got := r.PassesBy(test.call); got != (test.key == "") {
				t.Errorf("it passes by: %v", got)
			}
			r.mustRun(t, test.call, created("ch_1"))
			if asked := r.store.asked(); test.key == "" && len(asked) != 0 || test.key != "" && asked[0].ID.Key != test.key {
				t.Errorf("claimed %+v, want %q", asked, test.key)
			}
		})
	}
}

func TestAFieldThatIsNoStringIsNoKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithKeyField("amount"), idempotency.WithKeyRequired())
	r.mustRefuse(t, fieldCharge("k", ""), code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyRequired)
}

func TestAValidatorsRuleIsToldToTheClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithKeyValidator(func(key string) error {
		if len(key) != 36 {
			return errors.New("send a UUID")
		}
		return nil
	}))
	e := r.refusal(t, charge("order-1", 1), code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyInvalid)
	if !strings.Contains(e.Message, "send a UUID") {
		t.Errorf("the client is told %q", e.Message)
	}
	r.mustRun(t, charge("5f2ad7b4-6c3f-4f5e-9d1a-2b3c4d5e6f70", 1), created("ch_1"))
}

func TestAReplayCheckIsAskedBeforeAStoredReplyIsGiven(t *testing.T) {
	t.Parallel()
	own := &idempotency.Error{Code: code.Code_PERMISSION_DENIED, Message: "no longer yours"}
	var refuse error
	var seen idempotency.Reply
	r := newRig(t, leased(), idempotency.WithReplayCheck(func(_ context.Context, _ idempotency.Call, stored idempotency.Reply) error {
		seen = stored
		return refuse
	}))
	r.mustRun(t, charge("k", 1), created("ch_1"))
	if seen.Message != nil {
		t.Error("it was asked about a reply that is fresh")
	}
	r.mustReplay(t, charge("k", 1), created("ch_1").Message)
	if !proto.Equal(seen.Message, created("ch_1").Message) {
		t.Errorf("it was asked about %v", seen.Message)
	}
	refuse = own
	if res := r.do(t.Context(), charge("k", 1), neverRuns(t)); !errors.Is(res.err, own) || res.reply.Message != nil {
		t.Errorf("the caller got %v, %v; want the check's own error", res.reply, res.err)
	}
	refuse = errors.New("the rights' table is down")
	e := r.refusal(t, charge("k", 1), code.Code_INTERNAL, idempotency.ReasonMisconfigured)
	if strings.Contains(e.Message, "table") {
		t.Errorf("the client is told %q", e.Message)
	}
}

package idempotency_test

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// hashOf returns the fingerprint with which a call is claimed.
func hashOf(t *testing.T, c idempotency.Call) string {
	t.Helper()
	r := newRig(t, leased())
	c.Keys = []string{"k"}
	r.mustRun(t, c, idempotency.Reply{})
	return r.store.asked()[0].RequestHash
}

// The values were computed by other means. They stand in tables: a change of them makes every retry a reused key.
func TestFingerprintsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call idempotency.Call
		want string
	}{
		"a message": {
			idempotency.Call{Procedure: createCharge, Request: &chargesv1.CreateChargeRequest{
				Amount: 1299, Currency: "USD", CardToken: "tok_ok", Description: "book",
			}},
			"v1:sha256:019938f8daf07e3bb28781013f6967e74beb782d824c28956bb8d9db641d5049",
		},
		"a payload": {
			idempotency.Call{Procedure: createCharge, Payload: []byte("payload")},
			"v1:sha256:66bb71528d10083348a104bba981037ec3dd99e49c8b0e76c46ef2d15b3526e2",
		},
	} {
		if got := hashOf(t, c.call); got != c.want {
			t.Errorf("%s: the fingerprint is %q, want %q", name, got, c.want)
		}
	}
}

func TestTheSameRequestHasTheSameFingerprintHoweverItWasSent(t *testing.T) {
	t.Parallel()
	want := &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD", CardToken: "tok_ok"}
	fromJSON := new(chargesv1.CreateChargeRequest)
	if err := protojson.Unmarshal([]byte(`{"card_token":"tok_ok", "currency":"USD", "amount":"1299"}`), fromJSON); err != nil {
		t.Fatal(err)
	}
	// The fields in another order, and one of them twice.
	wire := []byte("\x1a\x06tok_ok" + "\x08\x01" + "\x12\x03USD" + "\x08\x93\x0a")
	fromWire := new(chargesv1.CreateChargeRequest)
	if err := proto.Unmarshal(wire, fromWire); err != nil {
		t.Fatal(err)
	}
	dynamic := dynamicpb.NewMessage(want.ProtoReflect().Descriptor())
	if err := proto.Unmarshal(wire, dynamic); err != nil {
		t.Fatal(err)
	}
	hash := hashOf(t, idempotency.Call{Procedure: createCharge, Request: want})
	for name, m := range map[string]proto.Message{"JSON": fromJSON, "wire": fromWire, "dynamic": dynamic} {
		if got := hashOf(t, idempotency.Call{Procedure: createCharge, Request: m}); got != hash {
			t.Errorf("%s: the fingerprint is %q, want %q", name, got, hash)
		}
	}
}

func TestAMapsOrderDoesNotChangeTheFingerprint(t *testing.T) {
	t.Parallel()
	fields := make(map[string]any)
	for i := range 64 {
		fields[string(rune('0'+i))] = float64(i)
	}
	hashes := make(map[string]bool)
	for range 8 {
		m, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		hashes[hashOf(t, idempotency.Call{Procedure: createCharge, Request: m})] = true
	}
	if len(hashes) != 1 {
		t.Errorf("one message has %d fingerprints", len(hashes))
	}
}

func TestRequestsThatDiffer(t *testing.T) {
	t.Parallel()
	unknown := &chargesv1.CreateChargeRequest{}
	unknown.ProtoReflect().SetUnknown([]byte("\xf8\x3f\x01"))
	seen := make(map[string]string)
	for name, c := range map[string]idempotency.Call{
		"an empty message":             {Procedure: createCharge, Request: &chargesv1.CreateChargeRequest{}},
		"an unknown field":             {Procedure: createCharge, Request: unknown},
		"another procedure":            {Procedure: refundCharge, Request: &chargesv1.CreateChargeRequest{}},
		"a part of the procedure":      {Procedure: createCharge[1:], Payload: []byte("")},
		"the procedure in the payload": {Procedure: createCharge[:5], Payload: []byte(createCharge[5:])},
		"a payload":                    {Procedure: createCharge, Payload: []byte("x")},
		"another payload":              {Procedure: createCharge, Payload: []byte("y")},
	} {
		hash := hashOf(t, c)
		if other, taken := seen[hash]; taken {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[hash] = name
	}
}

func TestAWorkersEmptyPayloadIsAPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	c := idempotency.Call{Procedure: "payouts", Keys: []string{"message-1"}, Payload: []byte{}}
	r.mustRun(t, c, idempotency.Reply{})
	r.mustReplay(t, c, nil)
}

func TestWhetherRequiredFieldsAreSetIsForTheHandlerToJudge(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	c := idempotency.Call{Procedure: createCharge, Keys: []string{"k"}, Request: &descriptorpb.UninterpretedOption_NamePart{}}
	if proto.CheckInitialized(c.Request) == nil {
		t.Fatal("the request lacks nothing")
	}
	r.mustRun(t, c, created("ch_1"))
}

func TestARequestWithoutAFingerprintIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]idempotency.Call{
		"neither message nor payload": {Procedure: createCharge},
		"text that is no UTF-8":       {Procedure: createCharge, Request: &chargesv1.CreateChargeRequest{Currency: "\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Keys = []string{"k"}
			r := newRig(t, leased())
			if e := r.refusal(t, c, code.Code_INTERNAL, idempotency.ReasonMisconfigured); e.Cause == nil {
				t.Error("the refusal does not say why")
			}
			if n := len(r.store.asked()); n != 0 {
				t.Errorf("the store was asked %d times", n)
			}
			if o := r.last(t); o.Outcome != idempotency.Failed || o.KeyDigest == "" {
				t.Errorf("observed %+v, want failed, of the key", o)
			}
		})
	}
}

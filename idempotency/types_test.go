package idempotency_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// unlinked is a method whose reply's type has no Go code here.
func unlinked(t *testing.T) protoreflect.MethodDescriptor {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name:    new("payouts/v1/payouts.proto"),
		Package: new("payouts.v1"),
		Syntax:  new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("PayRequest")},
			{Name: new("PayResponse"), Field: []*descriptorpb.FieldDescriptorProto{{
				Name:     new("id"),
				JsonName: new("id"),
				Number:   new(int32(1)),
				Type:     descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
				Label:    descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			}}},
		},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: new("PayoutService"),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name:       new("Pay"),
				InputType:  new(".payouts.v1.PayRequest"),
				OutputType: new(".payouts.v1.PayResponse"),
			}},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Services().Get(0).Methods().Get(0)
}

func TestAReplyWhoseTypeIsNotLinkedInIsReplayedByTheMethodsSchema(t *testing.T) {
	t.Parallel()
	method := unlinked(t)
	c := idempotency.Call{
		Procedure: "/payouts.v1.PayoutService/Pay",
		Method:    method,
		Keys:      []string{"k"},
		Request:   dynamicpb.NewMessage(method.Input()),
	}
	paid := dynamicpb.NewMessage(method.Output())
	paid.Set(method.Output().Fields().ByName("id"), protoreflect.ValueOfString("po_1"))

	r := newRig(t, leased())
	r.mustRun(t, c, idempotency.Reply{Message: paid})
	r.mustReplay(t, c, paid)

	c.Method = nil
	r.mustRefuse(t, c, code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
	c.Method = chargesv1.File_charges_v1_charges_proto.Services().Get(0).Methods().Get(0)
	r.mustRefuse(t, c, code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
}

func TestAReplyWhoseTypeNobodyKnowsIsNotKept(t *testing.T) {
	t.Parallel()
	method := unlinked(t)
	c := idempotency.Call{Procedure: "/payouts.v1.PayoutService/Pay", Keys: []string{"k"}, Request: dynamicpb.NewMessage(method.Input())}
	paid := idempotency.Reply{Message: dynamicpb.NewMessage(method.Output())}

	r := newRig(t, leased())
	r.mustRun(t, c, paid)
	r.mustRefuse(t, c, code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)

	r = newRig(t, transactional())
	r.do(t.Context(), c, func(context.Context) idempotency.Reply { return paid }).
		requireRefused(t, code.Code_INTERNAL, idempotency.ReasonReplyUnencodable)
}

// A handler without generated code may have a newer schema than the generated code that is linked in for something else.
func TestAReplyIsReplayedInTheMethodsSchemaBeforeTheTypeThatIsLinkedIn(t *testing.T) {
	t.Parallel()
	file := protodesc.ToFileDescriptorProto(chargesv1.File_charges_v1_charges_proto)
	for _, m := range file.MessageType {
		if m.GetName() == "CreateChargeResponse" {
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{
				Name: new("added"), JsonName: new("added"), Number: new(int32(500)),
				Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			})
		}
	}
	newer, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	c := charge("k", 1)
	c.Method = newer.Services().ByName("ChargeService").Methods().ByName("CreateCharge")
	message := dynamicpb.NewMessage(c.Method.Output())
	message.Set(c.Method.Output().Fields().ByName("added"), protoreflect.ValueOfString("in the newer schema alone"))

	r := newRig(t, leased())
	r.mustRun(t, c, idempotency.Reply{Message: message})
	got := r.mustReplay(t, c, message).Message
	if got.ProtoReflect().Descriptor() != c.Method.Output() {
		t.Errorf("replayed a %T, which lacks the new field", got)
	}
}

func TestADynamicReplyIsReplayedInTheTypeThatIsLinkedIn(t *testing.T) {
	t.Parallel()
	want := created("ch_1").Message
	encoded, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	dynamic := dynamicpb.NewMessage(want.ProtoReflect().Descriptor())
	if err := proto.Unmarshal(encoded, dynamic); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, leased())
	r.mustRun(t, charge("k", 1), idempotency.Reply{Message: dynamic})
	if got := r.mustReplay(t, charge("k", 1), want); got.Message.ProtoReflect().Type() != want.ProtoReflect().Type() {
		t.Errorf("replayed a %T, want a %T", got.Message, want)
	}
}

func TestAStoredReplyThatDoesNotOpenIsRefused(t *testing.T) {
	t.Parallel()
	const secretReply = "secret-reply-77e1"
	encode := func(m *idempotencyv1.StoredReply) []byte {
		t.Helper()
		encoded, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	message := func(name, value string) []byte {
		return encode(&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Message{
			Message: &idempotencyv1.Message{TypeName: name, Value: []byte(value)},
		}})
	}
	whole := message("charges.v1.CreateChargeResponse", "\x0a\x13\x0a\x11"+secretReply)
	for name, stored := range map[string][]byte{
		"nothing": {},
		"neither message nor error": encode(&idempotencyv1.StoredReply{Header: []*idempotencyv1.Metadata{
			{Name: "x-note", Values: [][]byte{[]byte(secretReply)}},
		}}),
		"cut off":                  whole[:len(whole)-1],
		"something behind":         append(slices.Clip(whole), 0x0a),
		"no protobuf":              []byte(secretReply),
		"a type that nobody knows": message("charges.v1.Gone", secretReply),
		"a value without a type":   message("", secretReply),
		"a value of another shape": message("charges.v1.CreateChargeResponse", secretReply),
		"text that is no UTF-8":    message("charges.v1.CreateChargeResponse", "\x0a\x04\x0a\x02\xff\xfe"),
		"an error with the code OK": encode(&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Error{
			Error: &idempotencyv1.Error{Message: []byte(secretReply)},
		}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, holding(store.Completed, stored))
			e := r.refusal(t, charge(secretKey, 1), code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
			if e.Cause == nil {
				t.Error("the refusal has no cause")
			}
			o := r.last(t)
			if o.Outcome != idempotency.Failed || o.Err == nil || o.Attempt != 0 {
				t.Errorf("observed %+v, want failed", o)
			}
			log := r.logged()
			for _, want := range []string{"level=ERROR", createCharge, o.KeyDigest} {
				if !strings.Contains(log, want) {
					t.Errorf("the log says nothing of %q: %s", want, log)
				}
			}
			for _, secret := range []string{secretKey, secretReply} {
				if strings.Contains(log+e.Error()+o.Err.Error(), secret) {
					t.Errorf("%q has got out: %s %v %v", secret, log, e, o.Err)
				}
			}
		})
	}
}

// A later schema may have fields that are required, which the reply of an earlier one lacks.
func TestAStoredReplyThatLacksARequiredFieldIsReplayed(t *testing.T) {
	t.Parallel()
	want := new(descriptorpb.UninterpretedOption_NamePart)
	if proto.CheckInitialized(want) == nil {
		t.Fatal("the message lacks nothing")
	}
	stored, err := proto.Marshal(&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Message{
		Message: &idempotencyv1.Message{TypeName: string(want.ProtoReflect().Descriptor().FullName())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	newRig(t, holding(store.Completed, stored)).mustReplay(t, charge("k", 1), want)
}

// holding is a store in which every key is settled, by the same request, with the code of the reply.
func holding(state store.State, reply []byte) *fake {
	s := leased()
	stored := new(idempotencyv1.StoredReply)
	_ = proto.Unmarshal(reply, stored) // what does not parse has no code
	s.finds = func(c store.Claim) store.Found {
		return store.Found{
			ID: c.ID, State: state, Token: store.NewToken(), Attempt: 1, RequestHash: c.RequestHash,
			Record: store.Record{State: state, Code: code.Code(stored.GetError().GetCode()), Reply: reply},
		}
	}
	return s
}

func TestAStoredReplyThatIsNotWhatItsRowSaysIsRefused(t *testing.T) {
	t.Parallel()
	stored, err := proto.Marshal(&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Error{
		Error: &idempotencyv1.Error{Code: int32(code.Code_NOT_FOUND)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := holding(store.Completed, stored)
	finds := s.finds
	s.finds = func(c store.Claim) store.Found {
		f := finds(c)
		f.Record.Code = code.Code_OK
		return f
	}
	newRig(t, s).mustRefuse(t, charge("k", 1), code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
}

func TestAnUnreadableReplyOfAnotherRequestIsRefusedAsReused(t *testing.T) {
	t.Parallel()
	s := holding(store.Completed, nil)
	finds := s.finds
	s.finds = func(c store.Claim) store.Found {
		f := finds(c)
		f.RequestHash = "v1:sha256:00"
		return f
	}
	r := newRig(t, s)
	r.mustRefuse(t, charge("k", 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
}

func TestARunThatMeetsItsOwnKeyDoesNotRunTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	res := r.do(t.Context(), charge("k", 1), func(ctx context.Context) idempotency.Reply {
		return idempotency.Reply{Error: r.do(ctx, charge("k", 1), neverRuns(t)).
			refusal(t, code.Code_ABORTED, idempotency.ReasonKeyInProgress)}
	})
	if res.err != nil || res.reply.Code() != code.Code_ABORTED {
		t.Errorf("got %v, %v; want the handler's own Aborted", res.reply, res.err)
	}
	r.mustRun(t, charge("k", 1), created("ch_1"))
}

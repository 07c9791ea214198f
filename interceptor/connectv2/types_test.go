package connectv2_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
)

// dynamicMethodOf is methodOf for a schema that was read at run time.
func dynamicMethodOf(t *testing.T, name protoreflect.Name) protoreflect.MethodDescriptor {
	t.Helper()
	file, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(chargesv1.File_charges_v1_charges_proto), protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file.Services().ByName("ChargeService").Methods().ByName(name)
}

// A schema, and messages, that were made at run time are guarded as generated ones are.
func TestDynamicMessages(t *testing.T) {
	method := dynamicMethodOf(t, "CreateCharge")
	runs := 0
	send := func(stream connect.ServerStream, description string) error {
		runs++
		res := dynamicpb.NewMessage(method.Output())
		charge := res.Mutable(method.Output().Fields().ByName("charge")).Message()
		charge.Set(charge.Descriptor().Fields().ByName("id"), protoreflect.ValueOfString(fmt.Sprintf("ch_%d for %s", runs, description)))
		return stream.Send(res)
	}
	handlers := map[string]connect.ServerFunc{
		"dynamic": func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			req := dynamicpb.NewMessage(method.Input())
			if err := stream.Receive(req); err != nil {
				return err
			}
			return send(stream, req.Get(method.Input().Fields().ByName("description")).String())
		},
		"generated request": func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			req := new(chargesv1.CreateChargeRequest)
			if err := stream.Receive(req); err != nil {
				return err
			}
			return send(stream, req.Description)
		},
	}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			runs = 0
			s := serve(t, byHand(t, backends["memory"](t).guard(t), method, handler))
			// In the process it has dynamic messages at both ends, or at none: see below.
			for _, protocol := range []string{"connect proto", "connect json", "grpc", "grpc-web"} {
				for range 2 {
					s.client(t, protocol).charge(t, "k", "one").mustBe(t, "ch_1 for one")
				}
			}
		})
	}
	runs = 0
	c := serve(t, byHand(t, backends["memory"](t).guard(t), method, handlers["dynamic"])).client(t, inProcess)
	for range 2 {
		ctx, _ := keyedContext(t, "k")
		res := dynamicpb.NewMessage(method.Output())
		spec := connect.Spec{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure}
		if err := c.raw.CallUnary(ctx, spec, dynamicpb.NewMessage(method.Input()), res); err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs in the process, want one", runs)
	}
}

// Interceptors on either side see a replay's message as they see the handler's.
func TestReplayHasTheSameType(t *testing.T) {
	var types []string
	outer := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			return next(ctx, spec, typeRecorder{stream, &types})
		}
	}
	c := guarded(t, backends["memory"](t).guard(t), respond, outer).client(t, "connect proto")
	for range 2 {
		c.charge(t, "k", "").mustBe(t, "ch_1")
	}
	want := []string{"received *chargesv1.CreateChargeRequest", "sent *chargesv1.CreateChargeResponse"}
	if !slices.Equal(types, slices.Concat(want, want)) {
		t.Errorf("an outer interceptor saw %v", types)
	}
}

type typeRecorder struct {
	connect.ServerStream
	types *[]string
}

func (s typeRecorder) Receive(msg any) error {
	*s.types = append(*s.types, fmt.Sprintf("received %T", msg))
	return s.ServerStream.Receive(msg)
}

func (s typeRecorder) Send(msg any) error {
	*s.types = append(*s.types, fmt.Sprintf("sent %T", msg))
	return s.ServerStream.Send(msg)
}

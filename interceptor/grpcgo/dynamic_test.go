package grpcgo_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
)

const (
	pay  = "/bank.v1.Bank/Pay"
	look = "/bank.v1.Bank/Look"
)

// bankFiles are the schema of a service that no Go code was generated for: Pay, and Look, which has no side effects. Its
// messages are in the service's file, or in one of their own.
func bankFiles(t *testing.T, inOneFile bool) *protoregistry.Files {
	t.Helper()
	message := func(name string) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: []*descriptorpb.FieldDescriptorProto{{
			Name: new("id"), Number: new(int32(1)),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		}}}
	}
	method := func(name string, level descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{
			Name: &name, InputType: new(".bank.v1.Request"), OutputType: new(".bank.v1.Response"),
			Options: &descriptorpb.MethodOptions{IdempotencyLevel: level.Enum()},
		}
	}
	file := func(name string) *descriptorpb.FileDescriptorProto {
		return &descriptorpb.FileDescriptorProto{Name: &name, Package: new("bank.v1"), Syntax: new("proto3")}
	}
	messages, service := file("messages.proto"), file("service.proto")
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{messages, service}}
	if inOneFile {
		messages, set.File = service, set.File[1:]
	} else {
		service.Dependency = []string{"messages.proto"}
	}
	messages.MessageType = []*descriptorpb.DescriptorProto{message("Request"), message("Response")}
	service.Service = []*descriptorpb.ServiceDescriptorProto{{Name: new("Bank"), Method: []*descriptorpb.MethodDescriptorProto{
		method("Pay", descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN), method("Look", descriptorpb.MethodOptions_NO_SIDE_EFFECTS),
	}}}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// bank is such a service, and how to make its messages.
type bank struct {
	*grpc.ServiceDesc
	request, response protoreflect.MessageDescriptor
}

func newBank(t *testing.T, files *protoregistry.Files) bank {
	t.Helper()
	find := func(name protoreflect.FullName) protoreflect.MessageDescriptor {
		d, err := files.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return d.(protoreflect.MessageDescriptor)
	}
	b := bank{request: find("bank.v1.Request"), response: find("bank.v1.Response")}
	handle := func(context.Context, *dynamicpb.Message) (any, error) { return withID(b.response, "pay_1"), nil }
	newRequest := func() *dynamicpb.Message { return dynamicpb.NewMessage(b.request) }
	b.ServiceDesc = &grpc.ServiceDesc{
		ServiceName: "bank.v1.Bank", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{unary(pay, newRequest, handle), unary(look, newRequest, handle)},
	}
	return b
}

func withID(d protoreflect.MessageDescriptor, id string) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	m.Set(d.Fields().ByName("id"), protoreflect.ValueOfString(id))
	return m
}

// call calls a procedure with the key "k".
func (b bank) call(t *testing.T, c conn, procedure string) answer {
	t.Helper()
	return c.call(withKey(within(t), "k"), procedure, withID(b.request, "r"), dynamicpb.NewMessage(b.response))
}

// Dynamic messages are replayed, by a server that has just started too, and their schema says what passes by.
func TestDynamicMessages(t *testing.T) {
	for name, inOneFile := range map[string]bool{"the request's file": true, "WithFiles": false} {
		t.Run(name, func(t *testing.T) {
			files := bankFiles(t, inOneFile)
			var opts []grpcgo.Option
			if !inOneFile {
				opts = append(opts, grpcgo.WithFiles(files))
			}
			service, g := newBank(t, files), backends["leased"](t).guard(t)
			for i := range 3 {
				client := dial(t, serve(t, service.ServiceDesc, grpcgo.UnaryServerInterceptor(g, opts...)))
				for procedure, want := range map[string]bool{pay: i > 0, look: false} {
					a := service.call(t, client, procedure)
					if a.err != nil {
						t.Fatal(a.err)
					}
					if got := grpcgo.Replayed(a.header, a.trailer); got != want || !proto.Equal(a.message, withID(service.response, "pay_1")) {
						t.Errorf("%s, call %d: %v, replayed %v; want %v", procedure, i, a.message, got, want)
					}
				}
			}
		})
	}
}

// A response that no server could read again is found out at the first call, and not at the first retry.
func TestResponseOfUnknownType(t *testing.T) {
	service := newBank(t, bankFiles(t, false))
	t.Run("transactional", func(t *testing.T) {
		client := dial(t, serve(t, service.ServiceDesc, interceptorOf(backends["transactional"](t).guard(t))))
		for range 2 {
			a := service.call(t, client, pay)
			a.mustBeRefused(t, codes.Internal, idempotency.ReasonReplyUnencodable)
		}
	})
	t.Run("leased", func(t *testing.T) {
		client := dial(t, serve(t, service.ServiceDesc, interceptorOf(backends["leased"](t).guard(t))))
		if a := service.call(t, client, pay); a.err != nil {
			t.Fatal(a.err)
		}
		a := service.call(t, client, pay)
		a.mustBeRefused(t, codes.FailedPrecondition, idempotency.ReasonReplyNotKept)
	})
}

// A service whose schema nobody knows is served with its generated messages, and a response that is none is found out.
func TestServiceWithoutSchema(t *testing.T) {
	for name, test := range map[string]struct {
		response any
		refused  bool
	}{"a message": {response: created("ch_1")}, "nothing": {refused: true}} {
		t.Run(name, func(t *testing.T) {
			const procedure = "/unknown.v1.Charges/Create"
			handle := func(context.Context, *dynamicpb.Message) (any, error) { return test.response, nil }
			request := func() *dynamicpb.Message { return dynamic(t, created("")) }
			service := &grpc.ServiceDesc{ServiceName: "unknown.v1.Charges", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
				unary(procedure, request, handle),
			}}
			client := dial(t, serve(t, service, interceptorOf(backends["memory"](t).guard(t))))
			for _, replayed := range []bool{false, true} {
				a := client.call(withKey(within(t), "k"), procedure, created("r"), created(""))
				if replayed && test.refused {
					a.mustBeRefused(t, codes.FailedPrecondition, idempotency.ReasonReplyNotKept)
				} else if a.err != nil || grpcgo.Replayed(a.header, a.trailer) != replayed {
					t.Errorf("answered %v, want replayed %v", a, replayed)
				}
			}
		})
	}
}

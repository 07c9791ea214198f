package grpcgo

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// reply is what the client will see of what the handler returned.
func reply(method protoreflect.MethodDescriptor, held heldStream, res any, err error) idempotency.Reply {
	r := idempotency.Reply{Header: kept(held.header), Trailer: kept(held.trailer)}
	if err != nil {
		r.Error = errorSeen(err)
		return r
	}
	r.Message, r.Unencodable = message(method, res)
	return r
}

// errorSeen is a handler's error as grpc's server will send it.
func errorSeen(err error) *idempotency.Error {
	s := statusOf(err)
	return &idempotency.Error{
		Code:    code.Code(s.Code()), //nolint:gosec // a code is small
		Message: s.Message(),
		Details: s.Proto().GetDetails(),
		Cause:   err,
	}
}

// statusOf is what grpc makes of an error, which need not be a status.
func statusOf(err error) *status.Status {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return s
}

// message is a handler's response, and the error says why it is none.
func message(method protoreflect.MethodDescriptor, res any) (proto.Message, error) {
	if res == nil && method != nil {
		return dynamicpb.NewMessage(method.Output()), nil // grpc sends nothing, which is what an empty message is
	}
	m, ok := res.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("the response is a %T, and no protobuf message", res)
	}
	return m, nil
}

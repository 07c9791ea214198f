package connectv2

import (
	"fmt"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// requestStream gives the handler a request that was read before it, as if it came from the stream.
type requestStream struct {
	connect.ServerStream
	request proto.Message // nil where none was read
	given   bool
}

func (s *requestStream) Receive(dst any) error {
	if s.request == nil || s.given {
		return s.ServerStream.Receive(dst)
	}
	s.given = true
	return give(dst, s.request)
}

// give copies a message into what it is received in, so that a second run gets the request unchanged.
func give(dst any, message proto.Message) error {
	into, ok := dst.(proto.Message)
	if !ok {
		return fmt.Errorf("a %T receives a %T, and is no protobuf message", dst, message)
	}
	if into.ProtoReflect().Descriptor() == message.ProtoReflect().Descriptor() {
		proto.Reset(into)
		proto.Merge(into, message)
		return nil
	}
	// Two descriptors of one message: one of them was made at run time.
	encoded, err := proto.MarshalOptions{AllowPartial: true}.Marshal(message)
	if err == nil {
		err = proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(encoded, into)
	}
	if err != nil {
		return fmt.Errorf("copy %T into %T: %w", message, into, err)
	}
	return nil
}

// heldStream is what a guarded handler gets: it holds back what is sent until the attempt is settled.
type heldStream struct {
	requestStream
	sent    bool
	message any
}

// SendHeaders does nothing. The header goes out with the answer, as a unary call's does over HTTP anyway.
func (s *heldStream) SendHeaders() error { return nil }

func (s *heldStream) Send(message any) error {
	if s.sent {
		return connect.NewError(connect.CodeInternal, "a unary procedure sent a second message")
	}
	s.sent, s.message = true, message
	return nil
}

// flush sends what was held back.
func (s *heldStream) flush() error {
	if !s.sent {
		return nil
	}
	return s.ServerStream.Send(s.message)
}

// newMessage makes an empty message: of the Go type that is linked in for this very descriptor, else a dynamic one.
func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	linked, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err == nil && linked.Descriptor() == d {
		return linked.New().Interface()
	}
	return dynamicpb.NewMessage(d)
}

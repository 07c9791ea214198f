package idempotency

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Call is one call as an adapter hands it to the guard. It is not changed.
type Call struct {
	// Procedure is the fully qualified name, such as "/charges.v1.ChargeService/CreateCharge". Part of the fingerprint.
	Procedure string
	// Method is the procedure's schema, nil where it is not known. With it a reply whose Go type is not linked in can be
	// replayed too.
	Method protoreflect.MethodDescriptor
	// NoSideEffects says that the procedure is marked so in its schema: the guard lets it pass by.
	NoSideEffects bool
	// Keys are the raw values of the metadata named by [Guard.Header], or a worker's message id. More than one is
	// refused.
	Keys []string
	// Request is the request's message. Nil for a worker that has a Payload instead.
	Request proto.Message
	// Payload is what is fingerprinted where Request is nil. A call that has neither is refused; an empty payload is one.
	Payload []byte
}

// Package connectv2 guards the unary procedures of a Connect v2 server (connectrpc.com/connect/v2), over HTTP (Connect, gRPC
// and gRPC-Web) and over the in-process transport:
//
//	guard, err := idempotency.New(store, idempotency.WithScope(tenantOf))
//	// …
//	server := connect.NewServer(connectv2.NewServerInterceptor(guard))
//	chargesv1connect.RegisterChargeServiceHandler(server, svc)
//
// Interceptors that were given before this one are outside: they run for replays and refusals too, so authentication,
// which settles whose a key is, and validation belong there. Those given after it are inside: they run with the handler,
// once, and what they add to an answer is replayed. A header or trailer that a run set in the place of an outer
// interceptor's, or took away, is so in its replay too.
//
// Streaming procedures, procedures marked NO_SIDE_EFFECTS, and calls without a key where none is required pass by. To read a
// key and make a fingerprint the guard needs the request's type, which it takes from [connect.Spec]'s Schema, a
// protoreflect.MethodDescriptor in generated code. A procedure without one, such as those that [connect.Server]'s
// SetUnknownHandler serves, passes by where no key was sent, and is refused as [idempotency.ReasonMisconfigured] where one
// was: it may be unary, and never runs unguarded then. A policy that is off lets it pass.
package connectv2

import (
	"context"
	"net/textproto"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// NewServerInterceptor makes an interceptor of a guard. It is safe for concurrent use, and may serve any number of servers.
//
// What a refused client gets is in package idempotency: each error there reaches the client with its code, details and
// metadata. A replay carries the metadata "idempotency-replayed: true"; in all else it is what the first caller got, whatever
// protocol and codec either of them used. A message has that mark in its header. What accompanies an error (the mark,
// "retry-after", and what Connect v1 keeps as an error's own metadata) is in the header, but over gRPC and gRPC-Web in the
// trailer, as Connect v1 has it.
//
// What the handler sends reaches the client when it has returned and its attempt is settled, together with all that it set
// in the response's header and trailer; the message must not be changed after it was sent. An error that is returned after a
// message was sent is the answer, and a second message is an error of Send.
func NewServerInterceptor(g *idempotency.Guard) connect.ServerInterceptor {
	i := &interceptor{guard: g, header: textproto.CanonicalMIMEHeaderKey(g.Header())}
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			return i.serve(ctx, spec, stream, next)
		}
	}
}

type interceptor struct {
	guard  *idempotency.Guard
	header string // canonical, so that reading it costs no allocation
}

// serve lets a call pass by, or guards it.
func (i *interceptor) serve(ctx context.Context, spec connect.Spec, stream connect.ServerStream, next connect.ServerFunc) error {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok { // the server was not called through connect.Server
		info = new(connect.CallInfo)
	}
	c := idempotency.Call{
		Procedure:     spec.Procedure,
		NoSideEffects: spec.IdempotencyLevel == connect.IdempotencyNoSideEffects,
		Keys:          info.RequestHeader().Values(i.header),
	}
	if c.NoSideEffects || streams(spec, c) || i.guard.PassesByUnread(c) {
		return next(ctx, spec, stream)
	}
	if c.Method, ok = spec.Schema.(protoreflect.MethodDescriptor); ok {
		// Read here already: the key may be a field of the request, and a policy may look at it.
		c.Request = newMessage(c.Method.Input())
		if err := stream.Receive(c.Request); err != nil {
			return err
		}
	}
	if i.guard.PassesBy(c) {
		return next(ctx, spec, &requestStream{ServerStream: stream, request: c.Request})
	}
	return i.guarded(ctx, c, guardedCall{info: info, spec: spec, stream: stream, next: next})
}

// streams reports whether a call is no unary one. Of a bidirectional one without a schema that is not known: a server says so
// of procedures that it does not have. With a key it counts as unary.
func streams(spec connect.Spec, c idempotency.Call) bool {
	if spec.StreamType == connect.StreamTypeBidi && spec.Schema == nil {
		return len(c.Keys) == 0
	}
	return spec.StreamType != connect.StreamTypeUnary
}

// guardedCall is what connect hands to an interceptor.
type guardedCall struct {
	info   *connect.CallInfo
	spec   connect.Spec
	stream connect.ServerStream
	next   connect.ServerFunc
}

// guarded runs a call under its key. Where the handler ran, what it sent and returned is handed on untouched.
func (i *interceptor) guarded(ctx context.Context, c idempotency.Call, call guardedCall) error {
	var held *heldStream
	var runErr error
	metadata := startMetadata(call.info)
	reply, replayed, err := i.guard.Do(ctx, c, func(ctx context.Context) idempotency.Reply {
		metadata.restore() // what an earlier run, that met a conflict, has set
		held = &heldStream{requestStream: requestStream{ServerStream: call.stream, request: c.Request}}
		runErr = call.next(ctx, call.spec, held)
		return metadata.reply(held, runErr)
	})
	if err == nil && !replayed {
		if runErr != nil {
			return runErr
		}
		return held.flush()
	}
	metadata.restore() // what an attempt has set that lost its key, or that was undone
	switch {
	case err != nil:
		return metadata.refusal(err)
	case reply.Error != nil:
		return metadata.replayError(reply)
	default:
		metadata.replayMessage(reply)
		return call.stream.Send(reply.Message)
	}
}

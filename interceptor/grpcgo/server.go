package grpcgo

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// UnaryServerInterceptor makes an interceptor of a guard. It is safe for concurrent use, and may serve any number of
// servers.
//
// What a refused client gets is in package idempotency: each error there reaches the client as a status with its code and
// details, and with its metadata as trailer; interceptors outside find the [*idempotency.Error] by errors.As. A replay
// carries "idempotency-replayed: true", with a message in the header and with an error in the trailer; in all else it is
// what the first caller got, whatever protocol and server either of them used.
//
// A keyed call whose request is no proto.Message is refused (Internal, [idempotency.ReasonMisconfigured]).
func UnaryServerInterceptor(g *idempotency.Guard, opts ...Option) grpc.UnaryServerInterceptor {
	s := &serverInterceptor{guard: g, header: strings.ToLower(g.Header()), methods: newMethods(opts)}
	return s.intercept
}

type serverInterceptor struct {
	guard   *idempotency.Guard
	header  string
	methods *methods
}

func (s *serverInterceptor) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := idempotency.Call{
		Procedure: info.FullMethod,
		Keys:      metadata.ValueFromIncomingContext(ctx, s.header),
	}
	c.Request, _ = req.(proto.Message) // the guard refuses a call that has none
	c.Method, c.NoSideEffects = s.methods.find(c.Procedure, c.Request)
	if s.guard.PassesBy(c) {
		return handler(ctx, req)
	}
	return s.guarded(ctx, c, req, handler)
}

// guarded runs a call under its key. Where the handler ran, what it returned is handed on untouched.
func (s *serverInterceptor) guarded(ctx context.Context, c idempotency.Call, req any, handler grpc.UnaryHandler) (any, error) {
	var res any
	var resErr error
	var held heldStream
	stream := grpc.ServerTransportStreamFromContext(ctx)
	stored, replayed, err := s.guard.Do(ctx, c, func(ctx context.Context) idempotency.Reply {
		run := new(runStream) // of its own: an earlier run, that met a conflict, may have set something
		res, resErr = handler(run.in(ctx, stream), req)
		held = run.end()
		return reply(c.Method, held, res, resErr)
	})
	switch {
	case err != nil:
		return nil, refuse(stream, err)
	case !replayed:
		held.handOn(stream)
		return res, resErr
	case stored.Error != nil:
		return nil, replayError(stream, stored)
	default:
		replayMetadata(stored).handOn(stream)
		return stored.Message, nil
	}
}

// Package interceptor guards the unary procedures of a Connect server (connectrpc.com/connect, which serves Connect, gRPC
// and gRPC-Web):
//
//	guard, err := idempotency.New(store, idempotency.WithScope(tenantOf))
//	// …
//	mux.Handle(chargesv1connect.NewChargeServiceHandler(svc, connect.WithInterceptors(interceptor.New(guard))))
//
// Interceptors that were given before this one are outside: they run for replays and refusals too, so authentication,
// which settles whose a key is, and validation belong there. Those given after it are inside: they run with the handler,
// once, and what they add to an answer is replayed. A header or trailer that a run set in the place of an outer
// interceptor's, or took away, is so in its replay too.
//
// Clients, streaming procedures, procedures marked NO_SIDE_EFFECTS, and calls without a key where none is required pass by.
package interceptor

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// New makes an interceptor of a guard. It is safe for concurrent use, and may serve any number of handlers.
//
// What a refused client gets is in package idempotency: each error there reaches the client with its code, details and
// metadata. A replay carries the header "idempotency-replayed: true", on an error in the error's metadata; in all else it
// is what the first caller got, whatever protocol and codec either of them used.
func New(g *idempotency.Guard) connect.Interceptor {
	return &interceptor{guard: g, header: http.CanonicalHeaderKey(g.Header()), errors: connect.NewErrorWriter()}
}

type interceptor struct {
	guard     *idempotency.Guard
	header    string // canonical, so that a call without a key costs no allocation
	errors    *connect.ErrorWriter
	responses responseTypes
}

// WrapUnary guards handlers, and leaves clients alone.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		spec := req.Spec()
		if spec.IsClient {
			return next(ctx, req)
		}
		c := idempotency.Call{
			Procedure:     spec.Procedure,
			NoSideEffects: spec.IdempotencyLevel == connect.IdempotencyNoSideEffects,
			Keys:          req.Header()[i.header],
		}
		c.Method, _ = spec.Schema.(protoreflect.MethodDescriptor)
		c.Request, _ = req.Any().(proto.Message) // the guard refuses a call that has none
		if i.guard.PassesBy(c) {
			return next(ctx, req)
		}
		return i.guarded(ctx, c, req, next)
	}
}

// WrapStreamingClient leaves streams alone.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler leaves streams alone.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// guarded runs a call under its key. Where the handler ran, what it returned is handed on untouched.
func (i *interceptor) guarded(ctx context.Context, c idempotency.Call, req connect.AnyRequest, next connect.UnaryFunc) (connect.AnyResponse, error) {
	var res connect.AnyResponse
	var resErr error
	before, ran := startMetadata(ctx), false
	reply, replayed, err := i.guard.Do(ctx, c, func(ctx context.Context) idempotency.Reply {
		if ran {
			before.restore(ctx) // what an earlier run, that met a conflict, has set
		}
		ran = true
		res, resErr = next(ctx, req)
		return i.reply(ctx, before, res, resErr)
	})
	if err == nil && !replayed {
		if resErr == nil {
			i.responses.learn(c.Procedure, res)
		}
		return res, resErr
	}
	if ran {
		before.restore(ctx) // nothing goes out of an attempt that is not the answer
	}
	if err != nil {
		return nil, refusal(err)
	}
	replace(ctx, reply)
	if reply.Error != nil {
		return nil, replayError(ctx, reply)
	}
	return i.responses.replay(c.Procedure, reply), nil
}

package grpcgo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// UnaryClientInterceptor makes a client's interceptor of a retrier: each logical unary call of a procedure that is not
// marked NO_SIDE_EFFECTS gets a key and keeps it through its retries, as package client says. It is safe for concurrent
// use, and may serve any number of connections. Streams need no interceptor: they get no key.
//
//	retrier, err := client.New()
//	// …
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(grpcgo.UnaryClientInterceptor(retrier)))
//
// A key that the caller has put into the outgoing metadata (see [SetKey]) is kept. The caller's context, metadata and
// message are after the call what they were before. In a chain (grpc.WithChainUnaryInterceptor), interceptors that stand
// before this one run once a call, those behind it for each attempt.
//
// The answer is the last attempt's own, untouched, message or error, and so is what grpc.Header and grpc.Trailer get; a
// function given by grpc.OnFinish is called for each attempt. A call that is not sent fails with InvalidArgument or
// Internal, around a [*client.NotSentError].
//
// It needs no retryPolicy in the connection's service config. Where there is one, grpc-go's retries count with the attempt
// that they are part of: see [client.WithoutRetries]. grpc-go's own policy does not retry what connect-go's servers refuse,
// since they send a header with it; this interceptor does.
func UnaryClientInterceptor(r *client.Retrier, opts ...Option) grpc.UnaryClientInterceptor {
	c := &clientInterceptor{retrier: r, methods: newMethods(opts)}
	return c.intercept
}

type clientInterceptor struct {
	retrier *client.Retrier
	methods *methods
}

func (i *clientInterceptor) intercept(
	ctx context.Context, method string, req, res any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	c := client.Call{Procedure: method}
	message, _ := req.(proto.Message)
	_, c.NoSideEffects = i.methods.find(method, message)
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	c.Keys = outgoing.Get(i.retrier.Header())

	kept := keptOptions(opts)
	var answer error
	err := i.retrier.Do(ctx, c, func(ctx context.Context, key string) *client.Failure {
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, i.retrier.Header(), key)
		}
		kept.restore()
		var header, trailer metadata.MD
		answer = invoke(ctx, method, req, res, conn, append(slices.Clip(opts), grpc.Header(&header), grpc.Trailer(&trailer))...)
		return failure(answer, header, trailer)
	})
	if notSent, ok := errors.AsType[*client.NotSentError](err); ok {
		return &statusError{status: status.New(codes.Code(notSent.Code), notSent.Error()), err: notSent} //nolint:gosec // a code is small
	}
	return answer
}

// optionValues are where a call's options put header and trailer, and what stood there before. grpc writes there only where
// an attempt got as far as a stream.
type optionValues map[*metadata.MD]metadata.MD

func keptOptions(opts []grpc.CallOption) optionValues {
	values := make(optionValues)
	for _, opt := range opts {
		switch o := opt.(type) {
		case grpc.HeaderCallOption:
			values[o.HeaderAddr] = *o.HeaderAddr
		case grpc.TrailerCallOption:
			values[o.TrailerAddr] = *o.TrailerAddr
		}
	}
	return values
}

// restore takes away what an earlier attempt has left.
func (v optionValues) restore() {
	for into, before := range v {
		*into = before
	}
}

// SetKey returns a context with a key in its outgoing metadata, for a call with or without the interceptor. All who retry
// the operation send the same key; [client.NewKey] makes one. It goes under [idempotency.DefaultHeader], in place of what
// stands there. The error, around [client.ErrKeyInvalid], says what is wrong with the key.
func SetKey(ctx context.Context, key string) (context.Context, error) {
	if _, err := idempotency.ParseKey(key); err != nil {
		return nil, fmt.Errorf("grpcgo: %w: %w", client.ErrKeyInvalid, err)
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = make(metadata.MD)
	}
	md.Set(idempotency.DefaultHeader, key)
	return metadata.NewOutgoingContext(ctx, md), nil
}

// Replayed reports whether an answer is a replay of an earlier call's: a message is marked so in its header, an error in
// its header or trailer, by the server that it came from. grpc.Header and grpc.Trailer get both; either may be nil.
func Replayed(header, trailer metadata.MD) bool {
	isTrue := func(md metadata.MD) bool { return slices.Contains(md.Get(idempotency.HeaderReplayed), "true") }
	return isTrue(header) || isTrue(trailer)
}

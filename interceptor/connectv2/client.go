package connectv2

import (
	"context"
	"fmt"
	"net/textproto"

	"connectrpc.com/connect/v2"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// NewClientInterceptor makes a client's interceptor of a retrier: each logical unary call of a procedure that is not marked
// NO_SIDE_EFFECTS gets a key and keeps it through its retries, as package client says. It is safe for concurrent use, and
// may serve any number of clients. Streams are left alone.
//
//	retrier, err := client.New()
//	// …
//	transport := connecthttp.NewTransport(http.DefaultClient, url)
//	c := chargesv1connect.NewChargeServiceClient(connect.NewClient(transport, connectv2.NewClientInterceptor(retrier)))
//
// A key that the caller has put into the call info's request header (see [SetKey]) is kept. Each attempt has a
// [connect.CallInfo] of its own, whose request header begins as the caller's; so the caller's is after the call what it was
// before, and another call with the same context has another key. In all else the caller's call info shows the last attempt,
// once it has ended. An interceptor that was given before this one runs once a call; one that itself calls twice makes two
// calls. One that was given after it runs for each attempt. The message must not be changed between Send and the end of
// Receive.
//
// The answer is the last attempt's own, untouched, message or error. A call that is not sent fails with InvalidArgument or
// Internal, around a [*client.NotSentError].
//
// By itself net/http sends a request with the header "Idempotency-Key" once more, where a connection that it has used before
// turns out to be closed. Such an attempt counts with the one that it is part of.
func NewClientInterceptor(r *client.Retrier) connect.ClientInterceptor {
	i := &clientInterceptor{retrier: r, header: textproto.CanonicalMIMEHeaderKey(r.Header())}
	return func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			if spec.StreamType != connect.StreamTypeUnary || spec.IdempotencyLevel == connect.IdempotencyNoSideEffects {
				return next(client.WithNewKeys(ctx), spec)
			}
			return newClientCall(ctx, i, spec, next), nil
		}
	}
}

type clientInterceptor struct {
	retrier *client.Retrier
	header  string // canonical
}

// SetKey puts a key on a call by hand, with or without the interceptor: header is the request's, of the call info that
// [connect.NewClientContext] made. All who retry the operation send the same key; [client.NewKey] makes one. It goes under
// [idempotency.DefaultHeader], in place of what stands there. The error, around [client.ErrKeyInvalid], says what is wrong
// with the key, which then is not set.
func SetKey(header *connect.Header, key string) error {
	if _, err := idempotency.ParseKey(key); err != nil {
		return fmt.Errorf("connectv2: %w: %w", client.ErrKeyInvalid, err)
	}
	header.Set(idempotency.DefaultHeader, key)
	return nil
}

// Replayed reports whether a call's answer, message or error, is a replay of an earlier call's. It is for a client's call
// info, once the call has ended.
func Replayed(info *connect.CallInfo) bool {
	return info.ResponseHeader().Get(idempotency.HeaderReplayed) == "true" ||
		info.ResponseTrailer().Get(idempotency.HeaderReplayed) == "true"
}

package interceptor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// NewClient makes a client's interceptor of a retrier: each logical unary call of a procedure that is not marked
// NO_SIDE_EFFECTS gets a key and keeps it through its retries, as package client says. It is safe for concurrent use, and
// may serve any number of clients. Servers and streams are left alone.
//
//	retrier, err := client.New()
//	// …
//	c := chargesv1connect.NewChargeServiceClient(http.DefaultClient, url, connect.WithInterceptors(interceptor.NewClient(retrier)))
//
// A key that the caller has put into the request's header (see [SetKey]), or into the call info's, is kept. Each attempt
// has a header of its own, which begins as the caller's; so the caller's request is after the call what it was before, and
// a request that is sent once more is another call, with another key. An interceptor that stands before this one runs once
// a call; one that itself calls twice makes two calls. One that stands after it runs for each attempt, and gets a request
// that is no *connect.Request: Header, Any, Spec and Peer are what it has to use.
//
// The answer is the last attempt's own, untouched, message or error; so is what the call info shows. A call that is not
// sent fails with InvalidArgument or Internal, around a [*client.NotSentError].
//
// What a proxy answers that knows no RPC, a plain 503 for one, is Unavailable to Connect, and its retry-after is out of sight.
// By itself net/http sends a request with the header "Idempotency-Key" once more, where a connection that it has used before
// turns out to be closed. Such an attempt counts with the one that it is part of.
func NewClient(r *client.Retrier) connect.Interceptor {
	return &clientInterceptor{retrier: r, header: http.CanonicalHeaderKey(r.Header())}
}

type clientInterceptor struct {
	retrier *client.Retrier
	header  string // canonical
}

// WrapUnary gives calls keys, and sends them again.
func (i *clientInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		spec := req.Spec()
		if !spec.IsClient {
			return next(ctx, req)
		}
		if spec.IdempotencyLevel == connect.IdempotencyNoSideEffects {
			return next(client.WithNewKeys(ctx), req)
		}
		var res connect.AnyResponse
		var resErr error
		c := client.Call{Procedure: spec.Procedure, Keys: i.keys(req.Header())}
		err := i.retrier.Do(ctx, c, func(ctx context.Context, key string) *client.Failure {
			res, resErr = next(ctx, i.attempt(req, key))
			return failure(resErr)
		})
		if notSent, ok := errors.AsType[*client.NotSentError](err); ok {
			return nil, connect.NewError(connect.Code(notSent.Code), notSent) //nolint:gosec // a code is small
		}
		return res, resErr
	}
}

// WrapStreamingClient leaves streams alone.
func (*clientInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return next(client.WithNewKeys(ctx), spec)
	}
}

// WrapStreamingHandler leaves streams alone.
func (*clientInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// keys are what the caller has put under the key's name, in whichever case: HTTP/2 sends names in lower case, and so do
// those who write into a header's map.
func (i *clientInterceptor) keys(header http.Header) (keys []string) {
	for name, values := range header {
		if strings.EqualFold(name, i.header) {
			keys = append(keys, values...)
		}
	}
	return keys
}

// attempt is a request with a header of its own. The caller's is never written to, nor handed on: a transport may still
// read an attempt's header when the attempt has failed.
type attempt struct {
	connect.AnyRequest
	header http.Header
}

// Header returns the attempt's own header.
func (a attempt) Header() http.Header { return a.header }

func (i *clientInterceptor) attempt(req connect.AnyRequest, key string) attempt {
	a := attempt{AnyRequest: req, header: req.Header().Clone()}
	if key != "" {
		a.header[i.header] = []string{key}
	}
	return a
}

// SetKey puts a key on a call by hand, with or without the interceptor: header is the request's, or, in the simple API, the
// call info's. All who retry the operation send the same key; [client.NewKey] makes one. It goes under
// [idempotency.DefaultHeader], in place of what stands there. The error, around [client.ErrKeyInvalid], says what is wrong
// with the key, which then is not set.
func SetKey(header http.Header, key string) error {
	if _, err := idempotency.ParseKey(key); err != nil {
		return fmt.Errorf("interceptor: %w: %w", client.ErrKeyInvalid, err)
	}
	header.Set(idempotency.DefaultHeader, key)
	return nil
}

// Replayed reports whether an answer is a replay of an earlier call's. header is a response's, in the simple API the call
// info's. For an error see [ErrorReplayed].
func Replayed(header http.Header) bool { return header.Get(idempotency.HeaderReplayed) == "true" }

// ErrorReplayed reports whether an error is a replay of an earlier call's. It is false where err is nil, or none of
// Connect's.
func ErrorReplayed(err error) bool {
	e, ok := errors.AsType[*connect.Error](err)
	return ok && e != nil && Replayed(e.Meta())
}

package interceptor

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// refusal turns an error of the guard's into connect's.
func refusal(err error) error {
	if callback, ok := errors.AsType[*idempotency.CallbackError](err); ok {
		if own, ok := errors.AsType[*connect.Error](callback.Err); ok {
			return own
		}
	}
	if e, ok := errors.AsType[*idempotency.Error](err); ok {
		return connectError(e)
	}
	return connect.NewError(connect.CodeInternal, err)
}

func connectError(e *idempotency.Error) *connect.Error {
	c := connect.NewError(connect.Code(e.Code), seenError{e}) //nolint:gosec // a code is small
	for _, d := range e.Details {
		detail, err := connect.NewErrorDetail(d)
		if err != nil {
			// It takes an Any as it is, so that this does not happen; the error is worth more than its detail.
			continue
		}
		c.AddDetail(detail)
	}
	put(c.Meta(), e.Metadata)
	return c
}

// seenError has the text that the client sees, and what it was made from for those who look with errors.Is.
type seenError struct{ err *idempotency.Error }

func (e seenError) Error() string { return e.err.Message }
func (e seenError) Unwrap() error { return e.err }

// replayError turns a stored error into connect's. Its header and trailer, which the handler set through the call info,
// go out through it again.
func replayError(ctx context.Context, r idempotency.Reply) error {
	e := connectError(r.Error)
	header, trailer := e.Meta(), e.Meta()
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		header, trailer = info.ResponseHeader(), info.ResponseTrailer()
	}
	put(header, r.Header)
	put(trailer, r.Trailer)
	e.Meta().Set(idempotency.HeaderReplayed, "true")
	return e
}

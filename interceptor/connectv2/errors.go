package connectv2

import (
	"errors"

	"connectrpc.com/connect/v2"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// refusal turns an error of the guard's into connect's, and sets the metadata that goes with it.
func (m runMetadata) refusal(err error) error {
	if callback, ok := errors.AsType[*idempotency.CallbackError](err); ok {
		if own, ok := errors.AsType[*connect.Error](callback.Err); ok {
			return own
		}
	}
	if e, ok := errors.AsType[*idempotency.Error](err); ok {
		put(m.ofError(), e.Metadata)
		return connectError(e)
	}
	return connect.NewError(connect.CodeInternal, "").WithCause(err)
}

// connectError has what the client sees, and beside it what it was made from for those who look with errors.Is.
func connectError(e *idempotency.Error) *connect.Error {
	c := connect.NewError(connect.Code(e.Code), e.Message).WithCause(e) //nolint:gosec // a code is small
	for _, d := range e.Details {
		c = c.WithDetail(errorDetail(d))
	}
	return c
}

// replayError turns a stored error into connect's, and sets the metadata that goes with it.
func (m runMetadata) replayError(r idempotency.Reply) error {
	m.replay(r)
	put(m.ofError(), r.Error.Metadata)
	m.ofError().Set(idempotency.HeaderReplayed, "true")
	return connectError(r.Error)
}

// replayMessage sets the metadata that goes with a stored message.
func (m runMetadata) replayMessage(r idempotency.Reply) {
	m.replay(r)
	m.info.ResponseHeader().Set(idempotency.HeaderReplayed, "true")
}

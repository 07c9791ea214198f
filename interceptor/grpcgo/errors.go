package grpcgo

import (
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/code"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// pushback is the trailer in which grpc-go's own retry policy looks for when to come back, in milliseconds:
// https://github.com/grpc/proposal/blob/master/A6-client-retries.md
const pushback = "grpc-retry-pushback-ms"

// refuse turns an error of the guard's into grpc's. What goes with it is in the trailer: with a header, grpc-go's own retry
// policy would not try again.
func refuse(call grpc.ServerTransportStream, err error) error {
	if callback, ok := errors.AsType[*idempotency.CallbackError](err); ok {
		if s, ok := status.FromError(callback.Err); ok && s.Code() != codes.OK {
			return callback.Err
		}
	}
	e, ok := errors.AsType[*idempotency.Error](err)
	if !ok {
		e = &idempotency.Error{Code: code.Code_INTERNAL, Message: "idempotency: the call was refused", Cause: err}
	}
	trailer := given(e.Metadata)
	if delay, ok := idempotency.RetryDelay(e); ok {
		trailer.Set(pushback, strconv.FormatInt(delay.Milliseconds(), 10))
	}
	setTrailer(call, trailer)
	return newStatusError(e)
}

// replayError turns a stored error into grpc's, with what was stored beside it. An error's own metadata, which Connect
// keeps apart, is in the trailer, where Connect too sends it over gRPC.
func replayError(call grpc.ServerTransportStream, r idempotency.Reply) error {
	h := heldStream{header: given(r.Header), trailer: given(r.Trailer, r.Error.Metadata)}
	h.trailer.Set(idempotency.HeaderReplayed, "true")
	h.handOn(call)
	return newStatusError(r.Error)
}

// newStatusError makes grpc's error of one of the guard's, or of a stored one.
func newStatusError(e *idempotency.Error) *statusError {
	return &statusError{err: e, status: status.FromProto(&statuspb.Status{
		Code:    int32(idempotency.Reply{Error: e}.Code()), // never OK
		Message: e.Message,
		Details: e.Details,
	})}
}

// statusError is a status, and what it was made from for those who look with errors.Is and errors.As.
type statusError struct {
	status *status.Status
	err    error
}

// Error has the status alone: one that is wrapped sends the text of its wrapping.
func (e *statusError) Error() string { return e.status.Err().Error() }

// GRPCStatus returns the status that is sent.
func (e *statusError) GRPCStatus() *status.Status { return e.status }

func (e *statusError) Unwrap() []error { return []error{e.status.Err(), e.err} }

package interceptor

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// failure is what the retrier looks at of an attempt's error.
func failure(err error) *client.Failure {
	if err == nil {
		return nil
	}
	if broken(err) {
		return &client.Failure{Code: code.Code_UNAVAILABLE}
	}
	f := &client.Failure{Code: code.Code(connect.CodeOf(err))} //nolint:gosec // a code is small
	if e, ok := errors.AsType[*connect.Error](err); ok && e != nil {
		f.Details = plainDetails(e)
		f.RetryAfter = e.Meta().Values("Retry-After")
		f.Pushback = e.Meta().Values("Grpc-Retry-Pushback-Ms")
	}
	return f
}

// broken reports whether the connection broke under the call. Connect calls that Unavailable only as long as no part of
// the answer has come, and not always then: a connection that the peer resets is Canceled, an answer that ends early is
// Unknown or Internal, and so is a stream that is reset.
func broken(err error) bool {
	if connect.IsWireError(err) {
		return false // it is the server's answer
	}
	switch connect.CodeOf(err) {
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal:
		return client.Broken(err)
	default:
		return false
	}
}

// plainDetails are an error's details. Of their URLs connect gives out the type's name alone.
func plainDetails(e *connect.Error) []*anypb.Any {
	details := make([]*anypb.Any, len(e.Details()))
	for n, d := range e.Details() {
		details[n] = &anypb.Any{TypeUrl: anyPrefix + d.Type(), Value: d.Bytes()}
	}
	return details
}

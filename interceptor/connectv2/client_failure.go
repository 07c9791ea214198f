package connectv2

import (
	"errors"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// failure is what the retrier looks at of an attempt's error.
func failure(info *connect.CallInfo, err error) *client.Failure {
	if err == nil {
		return nil
	}
	if broken(err) {
		return &client.Failure{Code: code.Code_UNAVAILABLE}
	}
	f := &client.Failure{
		Code:       code.Code(connect.CodeOf(err)), //nolint:gosec // a code is small
		RetryAfter: said(info, "retry-after"),
		Pushback:   said(info, "grpc-retry-pushback-ms"),
	}
	if e, ok := errors.AsType[*connect.Error](err); ok && e != nil {
		for _, d := range e.Details() {
			f.Details = append(f.Details, connectproto.ErrorDetailToAny(d))
		}
	}
	return f
}

// said is a name's values in header or trailer. Over gRPC-Web a client gets one and the same as both.
func said(info *connect.CallInfo, name string) []string {
	if values := info.ResponseTrailer().Values(name); len(values) > 0 {
		return values
	}
	return info.ResponseHeader().Values(name)
}

// broken reports whether the connection broke under the call. Connect calls that Unavailable only as long as no part of
// the answer has come, and not always then: a connection that the peer resets is Canceled, an answer that ends early is
// Unknown or Internal, and so is a stream that is reset.
func broken(err error) bool {
	if e, ok := errors.AsType[*connect.Error](err); ok && e.IsRemote() {
		return false // it is the server's answer
	}
	switch connect.CodeOf(err) {
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal:
		return client.Broken(err)
	default:
		return false
	}
}

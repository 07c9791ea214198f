package grpcgo

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// failure is what a retrier looks at of an attempt's error, nil for success. Where a server of Connect has sent a header,
// what goes with its error may stand there.
func failure(err error, header, trailer metadata.MD) *client.Failure {
	if err == nil {
		return nil
	}
	s := statusOf(err)
	f := &client.Failure{
		Code:       code.Code(s.Code()), //nolint:gosec // a code is small
		Details:    s.Proto().GetDetails(),
		RetryAfter: slices.Concat(header.Get("retry-after"), trailer.Get("retry-after")),
		Pushback:   slices.Concat(header.Get(pushback), trailer.Get(pushback)),
	}
	if brokenStream(s) {
		f.Code = code.Code_UNAVAILABLE
	}
	return f
}

// brokenStream reports whether a stream ended before the answer was whole, in the sense of [client.Broken]. grpc-go says
// Unavailable of a connection that broke, but of one stream Internal or Canceled, and tells it by the text alone. Taken for
// it, a server's own error with this text would cost a retry, and no more.
func brokenStream(s *status.Status) bool {
	switch s.Message() {
	case "stream terminated by RST_STREAM with error code: NO_ERROR",
		"stream terminated by RST_STREAM with error code: INTERNAL_ERROR",
		"stream terminated by RST_STREAM with error code: CANCEL",
		"server closed the stream without sending trailers":
		return len(s.Proto().GetDetails()) == 0
	default:
		return false
	}
}

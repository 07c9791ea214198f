package interceptor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// reply is what the client will see of what the handler returned.
func (i *interceptor) reply(ctx context.Context, before runMetadata, res connect.AnyResponse, err error) idempotency.Reply {
	r := before.of(ctx)
	if err != nil {
		r.Error = i.errorSeen(err)
		return r
	}
	r.Header, r.Trailer = addTo(r.Header, res.Header()), addTo(r.Trailer, res.Trailer())
	var ok bool
	if r.Message, ok = res.Any().(proto.Message); !ok {
		r.Unencodable = fmt.Errorf("the response is a %T, and no protobuf message", res.Any())
	}
	return r
}

// errorSeen is a handler's error as connect will send it: the outermost *connect.Error of its chain, else the code that
// connect gives to what is none.
func (i *interceptor) errorSeen(err error) *idempotency.Error {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e == nil {
		return &idempotency.Error{Code: uncoded(err), Message: err.Error(), Cause: err}
	}
	seen := &idempotency.Error{Code: code.Code(e.Code()), Message: e.Message(), Cause: err} //nolint:gosec // a code is small
	seen.Details = i.details(e)
	// Connect does not hand on the metadata of an error that came from another server.
	if !connect.IsWireError(e) {
		seen.Metadata = addTo(nil, e.Meta())
	}
	return seen
}

// details are the error's, whole. Of a detail's type URL connect itself gives out the last part alone; all of it, which
// clients of gRPC see, stands in what it writes for them.
func (i *interceptor) details(e *connect.Error) []*anypb.Any {
	if len(e.Details()) == 0 {
		return nil
	}
	if written, err := i.writtenDetails(e); err == nil && len(written) == len(e.Details()) {
		return written
	}
	return plainDetails(e)
}

// anyPrefix stands before the type's name in most details' URLs.
const anyPrefix = "type.googleapis.com/"

// writtenDetails reads the details out of what a client of gRPC-Web would get.
func (i *interceptor) writtenDetails(e *connect.Error) ([]*anypb.Any, error) {
	call := &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/grpc-web"}}}
	written := headerWriter{}
	if err := i.errors.Write(written, call, e); err != nil {
		return nil, err
	}
	encoded, err := connect.DecodeBinaryHeader(http.Header(written).Get("Grpc-Status-Details-Bin"))
	if err != nil {
		return nil, err
	}
	var s status.Status
	if err := proto.Unmarshal(encoded, &s); err != nil {
		return nil, err
	}
	return s.GetDetails(), nil
}

// headerWriter is an http.ResponseWriter that keeps the header alone.
type headerWriter http.Header

func (w headerWriter) Header() http.Header       { return http.Header(w) }
func (headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (headerWriter) WriteHeader(int)             {}

// uncoded is the code that connect gives to an error that is none of its own.
func uncoded(err error) code.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return code.Code_CANCELLED
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return code.Code_DEADLINE_EXCEEDED
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET),
		// What net/http says of a stream that its client has left, in errors that it does not export.
		err.Error() == "client disconnected", err.Error() == "http2: stream closed":
		return code.Code_CANCELLED
	default:
		return code.Code_UNKNOWN
	}
}

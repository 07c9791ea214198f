package interceptor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// reply is what the client will see of what the handler returned.
func (m runMetadata) reply(ctx context.Context, res connect.AnyResponse, err error) idempotency.Reply {
	var r idempotency.Reply
	r.Header, r.Trailer = m.added(ctx)
	if err != nil {
		r.Error = errorSeen(err)
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
func errorSeen(err error) *idempotency.Error {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e == nil {
		return &idempotency.Error{Code: uncoded(err), Message: err.Error(), Cause: err}
	}
	seen := &idempotency.Error{Code: code.Code(e.Code()), Message: e.Message(), Cause: err} //nolint:gosec // a code is small
	for _, d := range e.Details() {
		seen.Details = append(seen.Details, &anypb.Any{TypeUrl: anyPrefix + d.Type(), Value: d.Bytes()})
	}
	// Connect does not hand on the metadata of an error that came from another server.
	if !connect.IsWireError(e) {
		seen.Metadata = addTo(nil, e.Meta())
	}
	return seen
}

// anyPrefix stands before the type's name in a detail's URL; connect keeps the name alone within reach.
const anyPrefix = "type.googleapis.com/"

// uncoded is the code that connect gives to an error that is none of its own.
func uncoded(err error) code.Code {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return code.Code_CANCELLED
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return code.Code_DEADLINE_EXCEEDED
	default:
		return code.Code_UNKNOWN
	}
}

package connectv2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// reply is what the client will see of what the handler sent and returned.
func (m runMetadata) reply(held *heldStream, err error) idempotency.Reply {
	var r idempotency.Reply
	r.Header, r.ReplacedHeader = change(m.header, m.info.ResponseHeader())
	r.Trailer, r.ReplacedTrailer = change(m.trailer, m.info.ResponseTrailer())
	switch message, ok := held.message.(proto.Message); {
	case err != nil:
		r.Error = errorSeen(err, m.info.Protocol)
	case ok:
		r.Message = message
	case held.sent:
		r.Unencodable = fmt.Errorf("the response is a %T, and no protobuf message", held.message)
	default:
		r.Unencodable = errors.New("the handler returned no error, and sent no message")
	}
	return r
}

// errorSeen is a handler's error as connect will send it: the outermost *connect.Error of its chain, unless it came from
// another server, and else a code without a text.
func errorSeen(err error, protocol string) *idempotency.Error {
	e, ok := errors.AsType[*connect.Error](err)
	switch {
	case !ok || e == nil:
		return &idempotency.Error{Code: uncoded(err, protocol), Cause: err}
	case e.IsRemote():
		return &idempotency.Error{Code: code.Code_INTERNAL, Cause: err}
	}
	seen := &idempotency.Error{Code: code.Code(e.Code()), Message: e.Message(), Cause: err} //nolint:gosec // a code is small
	for _, d := range e.Details() {
		seen.Details = append(seen.Details, connectproto.ErrorDetailToAny(d))
	}
	return seen
}

// uncoded is the code that connect gives to an error that is none of its own. The in-process transport, which has no
// protocol, does not know the deadlines of package os.
func uncoded(err error, protocol string) code.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return code.Code_CANCELLED
	case errors.Is(err, context.DeadlineExceeded), protocol != "" && errors.Is(err, os.ErrDeadlineExceeded):
		return code.Code_DEADLINE_EXCEEDED
	default:
		return code.Code_UNKNOWN
	}
}

// errorDetail is the way back from connectproto.ErrorDetailToAny. A type URL with another prefix than most is kept whole,
// for clients of gRPC see it.
func errorDetail(d *anypb.Any) *connect.ErrorDetail {
	if name, ok := strings.CutPrefix(d.TypeUrl, anyPrefix); ok && !strings.Contains(name, "/") {
		return &connect.ErrorDetail{Type: name, Value: d.Value}
	}
	return &connect.ErrorDetail{Type: d.TypeUrl, Value: d.Value}
}

// anyPrefix stands before the type's name in most details' URLs.
const anyPrefix = "type.googleapis.com/"

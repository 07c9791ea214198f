package interceptor_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// answer is all that a client sees of a call.
type answer struct {
	message         *chargesv1.CreateChargeResponse
	code            connect.Code // 0 for a message
	text            string
	details         []string
	header, trailer http.Header // of an error: its metadata, in header
}

func answerOf(t *testing.T, res createResponse, err error) answer {
	t.Helper()
	if err == nil {
		return answer{message: res.Msg, header: plain(res.Header()), trailer: plain(res.Trailer())}
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		t.Fatalf("%T: %v is not connect's", err, err)
	}
	a := answer{code: e.Code(), text: e.Message(), header: plain(e.Meta())}
	for _, d := range e.Details() {
		a.details = append(a.details, d.Type()+" "+string(d.Bytes()))
	}
	return a
}

// plain leaves out what the protocols and the server add of themselves.
func plain(h http.Header) http.Header {
	h = h.Clone()
	for name := range h {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "grpc-"), strings.HasPrefix(lower, "connect-"),
			lower == "accept-encoding", lower == "date", lower == "trailer", lower == "vary":
			delete(h, name)
		}
	}
	return h
}

// replayed takes the mark of a replay off an answer, and reports whether it was there.
func (a *answer) replayed() bool {
	const name = "Idempotency-Replayed"
	is := len(a.header[name]) == 1 && a.header[name][0] == "true"
	delete(a.header, name)
	return is
}

func (a answer) equal(b answer) bool {
	return proto.Equal(a.message, b.message) && a.code == b.code && a.text == b.text &&
		strings.Join(a.details, "\n") == strings.Join(b.details, "\n") &&
		equalHeader(a.header, b.header) && equalHeader(a.trailer, b.trailer)
}

func equalHeader(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if strings.Join(a[name], "\n") != strings.Join(b[name], "\n") {
			return false
		}
	}
	return true
}

// mustRefuse checks that an error is the guard's own, with the code and reason.
func mustRefuse(t *testing.T, err error, code connect.Code, reason string) {
	t.Helper()
	_ = refusedAs(t, err, code, reason)
}

// refusedAs is mustRefuse, and returns the error.
func refusedAs(t *testing.T, err error, code connect.Code, reason string) *connect.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("answered, want %v, %s", code, reason)
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code() != code {
		t.Fatalf("refused with %v, want %v, %s", err, code, reason)
	}
	info := detail[*errdetails.ErrorInfo](t, e)
	if info.GetReason() != reason || info.GetDomain() != idempotency.Domain {
		t.Fatalf("refused with %v and %v, want %s", err, info, reason)
	}
	return e
}

// detail returns the error's detail of a type, and its zero value where it has none.
func detail[T proto.Message](t *testing.T, e *connect.Error) (m T) {
	t.Helper()
	for _, d := range e.Details() {
		v, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		if found, ok := v.(T); ok {
			return found
		}
	}
	return m
}

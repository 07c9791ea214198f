package connectv2_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// answer is all that a client sees of a call.
type answer struct {
	message         createResponse
	code            connect.Code // 0 for a message
	text            string
	details         []*connect.ErrorDetail
	header, trailer map[string][]string
}

func answerOf(t *testing.T, info *connect.CallInfo, res createResponse, err error) answer {
	t.Helper()
	a := answer{header: plain(info.ResponseHeader()), trailer: plain(info.ResponseTrailer())}
	if err == nil {
		a.message = res
		return a
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		t.Fatalf("%T: %v is not connect's", err, err)
	}
	a.code, a.text, a.details = e.Code(), e.Message(), e.Details()
	if !e.IsRemote() {
		t.Errorf("%v is the client's own, and not the server's", e)
	}
	return a
}

// plain leaves out what the protocols and the server add of themselves.
func plain(h *connect.Header) map[string][]string {
	m := make(map[string][]string)
	for name, values := range h.All() {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "grpc-"), strings.HasPrefix(lower, "connect-"),
			lower == "accept-encoding", lower == "date", lower == "trailer", lower == "vary":
		default:
			m[name] = slices.Clone(values)
		}
	}
	return m
}

// values are a name's, wherever they came: gRPC-Web may send a trailer as the header, and a client then gets it as both.
func (a answer) values(name string) []string {
	if values, ok := a.header[name]; ok {
		return values
	}
	return a.trailer[name]
}

// replayed takes the mark of a replay off an answer, and reports whether it was there.
func (a *answer) replayed() bool {
	const name = "Idempotency-Replayed"
	is := slices.Equal(a.values(name), []string{"true"})
	delete(a.header, name)
	delete(a.trailer, name)
	return is
}

func (a answer) equal(b answer) bool {
	sameDetail := func(x, y *connect.ErrorDetail) bool { return x.Type == y.Type && string(x.Value) == string(y.Value) }
	return proto.Equal(a.message, b.message) && a.code == b.code && a.text == b.text &&
		slices.EqualFunc(a.details, b.details, sameDetail) &&
		maps.EqualFunc(a.header, b.header, slices.Equal) && maps.EqualFunc(a.trailer, b.trailer, slices.Equal)
}

// mustBe checks that a charge was answered with.
func (a answer) mustBe(t *testing.T, id string) {
	t.Helper()
	if a.code != 0 || a.message.GetCharge().GetId() != id {
		t.Fatalf("answered %+v, want %s", a, id)
	}
}

// mustRefuse checks that an answer is the guard's own refusal, with the code and reason.
func (a answer) mustRefuse(t *testing.T, code connect.Code, reason string) {
	t.Helper()
	info := detail[*errdetails.ErrorInfo](t, a)
	if a.code != code || info.GetReason() != reason || info.GetDomain() != idempotency.Domain {
		t.Fatalf("answered %+v with %v, want %v, %s", a, info, code, reason)
	}
	if a.replayed() {
		t.Errorf("a refusal is marked as a replay: %+v", a)
	}
}

// mustSayWhen checks whether a refusal says when to come back.
func (a answer) mustSayWhen(t *testing.T, want bool) {
	t.Helper()
	info := detail[*errdetails.RetryInfo](t, a)
	after := a.values("Retry-After")
	if (info != nil) != want || (len(after) == 1) != want {
		t.Errorf("RetryInfo %v and retry-after %q, want both: %v", info, after, want)
	}
}

// detail returns the error's detail of a type, and its zero value where it has none.
func detail[T proto.Message](t *testing.T, a answer) (m T) {
	t.Helper()
	for _, d := range a.details {
		v, err := connectproto.UnmarshalErrorDetail(d)
		if err != nil {
			continue // a type that is not linked in
		}
		if found, ok := v.(T); ok {
			return found
		}
	}
	return m
}

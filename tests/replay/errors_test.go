package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

func TestErrors(t *testing.T) {
	all := make(map[string]answer)
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		all["code "+c.String()] = fails(func() error { return connect.NewError(c, errors.New("no: "+c.String())) })
		all["code "+c.String()+" without text"] = fails(func() error { return connect.NewError(c, nil) })
	}
	for name, text := range texts {
		all["text: "+name] = fails(func() error { return connect.NewError(connect.CodeNotFound, errors.New(text)) })
	}
	for name, err := range map[string]error{
		"a plain error":            errors.New("plain"),
		"a plain error of no text": errors.New(""),
		"a text that is not UTF-8": connect.NewError(connect.CodeInternal, errors.New("\xff\x00\xc0")),
		"a plain error, not UTF-8": errors.New("\xff"),
		"a wrapped error":          fmt.Errorf("outside: %w", connect.NewError(connect.CodeNotFound, errors.New("inside"))),
		"two errors, joined":       errors.Join(errors.New("first"), connect.NewError(connect.CodeAborted, nil), connect.NewError(connect.CodeInternal, nil)),
		"an error within an error": connect.NewError(connect.CodeInternal, connect.NewError(connect.CodeNotFound, errors.New("inside"))),
		"a nil error with a type":  (*connect.Error)(nil),
		"a code that is no code":   connect.NewError(99, errors.New("what")),
		"cancelled":                context.Canceled,
		"cancelled, wrapped":       fmt.Errorf("so: %w", context.Canceled),
		"cancelled, with a code":   connect.NewError(connect.CodeInternal, context.Canceled),
		"the deadline":             context.DeadlineExceeded,
		"the deadline, wrapped":    fmt.Errorf("so: %w", context.DeadlineExceeded),
		"a deadline of the system": fmt.Errorf("read: %w", os.ErrDeadlineExceeded),
		"a broken pipe":            fmt.Errorf("write: %w", syscall.EPIPE),
		"a client that is gone":    errors.New("client disconnected"),
		"a stream that is closed":  errors.New("http2: stream closed"),
		"a stream closed, wrapped": fmt.Errorf("so: %w", errors.New("http2: stream closed")),
		"not modified":             connect.NewNotModifiedError(http.Header{"Etag": {`"1"`}}),
		"a wire error":             wireError(connect.CodeResourceExhausted),
		"a wire error, wrapped":    fmt.Errorf("call theirs: %w", wireError(connect.CodeNotFound)),
		"a wire error with a code": connect.NewError(connect.CodeUnavailable, wireError(connect.CodeNotFound)),
		"metadata":                 withMetadata(connect.NewError(connect.CodeFailedPrecondition, errors.New("declined"))),
		"metadata of a wire error": withMetadata(wireError(connect.CodeFailedPrecondition)),
		"metadata, wrapped":        fmt.Errorf("so: %w", withMetadata(connect.NewError(connect.CodeNotFound, nil))),
		"details":                  withDetails(t, connect.NewError(connect.CodeFailedPrecondition, errors.New("declined"))),
		"details of a wire error":  withDetails(t, wireError(connect.CodeFailedPrecondition)),
		"details, wrapped":         fmt.Errorf("so: %w", withDetails(t, connect.NewError(connect.CodeNotFound, nil))),
		"all":                      withMetadata(withDetails(t, connect.NewError(connect.CodeOutOfRange, errors.New("all")))),
		"details with other URLs": withDetail(t, connect.NewError(connect.CodeNotFound, nil),
			&anypb.Any{TypeUrl: "https://types.example/of/google.protobuf.Empty"},
			&anypb.Any{TypeUrl: "elsewhere.v1.Bare", Value: []byte{1}}, &anypb.Any{TypeUrl: "/"}, new(anypb.Any)),
		"a detail that is 64 KiB": withDetail(t, connect.NewError(connect.CodeNotFound, nil),
			&anypb.Any{TypeUrl: "type.googleapis.com/elsewhere.v1.Large", Value: make([]byte, 64<<10)}),
		"a detail that is an Any":   withDetail(t, connect.NewError(connect.CodeNotFound, nil), pack(t, pack(t, new(testv1.Proto3Message)))),
		"a detail JSON cannot hold": withDetail(t, connect.NewError(connect.CodeNotFound, nil), structpb.NewStringValue("a\x00b")),
	} {
		all[name] = fails(func() error { return err })
	}
	both := fails(func() error { return withMetadata(connect.NewError(connect.CodeNotFound, errors.New("no"))) })
	both.infoHeader = http.Header{"X-Several": {"before"}, "X-Before": {"the error", "twice"}}
	both.infoTrailer = http.Header{"X-Several": {"behind"}, "X-After": {"the error", "twice"}, "X-After-Bin": {connect.EncodeBinaryHeader([]byte{0})}}
	all["header and trailer on the call info"] = both
	holdsForAll(t, all)
}

// An error of another Connect server, as a client got it, handed on. What its details say for people, in "debug", is not
// kept, and made anew of those whose types are known.
func TestErrorHandedOn(t *testing.T) {
	theirs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Theirs", "not handed on")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"not_found","message":"theirs","details":[
			{"type":"elsewhere.v1.NotLinked","value":"CAH/","debug":{"text":"for people"}},
			{"type":"google.protobuf.Duration","value":"CAE","debug":"1s"}]}`)
	}))
	t.Cleanup(theirs.Close)
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](theirs.Client(), theirs.URL)
	_, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
	if !connect.IsWireError(err) {
		t.Fatalf("%v is not their error", err)
	}
	a := fails(func() error { return fmt.Errorf("call theirs: %w", err) })
	r := newRig(t, newTable(t), "leased")
	name := r.register(a)
	for _, first := range protocols {
		key := r.newKey()
		_ = r.call(t, first, a.path(), name, key)
		for _, p := range protocols {
			fresh, replay := r.call(t, p, a.path(), name, ""), r.call(t, p, a.path(), name, key)
			if s := fresh.state(t); len(s.GetDetails()) != 2 || !proto.Equal(s, replay.state(t)) {
				t.Errorf("first over %s, then over %s:\nreplay %v\nfresh  %v", first.name, p.name, replay, fresh)
			}
			if p.enveloped && (!replay.takeMark() || replay.differs(fresh, nil) != "") {
				t.Errorf("first over %s, then over %s: in the replay and the fresh answer %s", first.name, p.name, replay.differs(fresh, nil))
			}
		}
	}
}

func fails(err func() error) answer { return answer{err: err} }

func wireError(code connect.Code) *connect.Error {
	return connect.NewWireError(code, errors.New("theirs"))
}

func withMetadata(e *connect.Error) *connect.Error {
	e.Meta()["X-Several"] = []string{"a", "b, c", ""}
	e.Meta()["X-Raw-Bin"] = []string{connect.EncodeBinaryHeader([]byte{1, 0, 254}), "", connect.EncodeBinaryHeader([]byte("second"))}
	e.Meta()["x-lower"] = []string{"as it is spelt"}
	e.Meta()["Retry-After"] = []string{"120"}
	return e
}

func withDetails(t *testing.T, e *connect.Error) *connect.Error {
	t.Helper()
	return withDetail(t, e,
		&testv1.Proto3Message{StringValue: "known", StringsByString: map[string]string{"a": "1"}},
		&anypb.Any{TypeUrl: "type.googleapis.com/elsewhere.v1.NotLinked", Value: []byte{8, 1, 0xff}},
		&anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Timestamp", Value: []byte{0x10, 2, 0x08, 1, 0x08, 3}}, // in no order
		&anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Timestamp", Value: []byte{0xff}},
		&timestamppb.Timestamp{Seconds: 1 << 60},
		withUnknown(new(testv1.Proto3Message)),
	)
}

func withDetail(t *testing.T, e *connect.Error, details ...proto.Message) *connect.Error {
	t.Helper()
	for _, m := range details {
		d, err := connect.NewErrorDetail(m)
		if err != nil {
			t.Fatal(err)
		}
		e.AddDetail(d)
	}
	return e
}

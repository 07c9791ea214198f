package grpcgo_test

import (
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
)

// answer is all that a client sees of a call.
type answer struct {
	message         proto.Message
	err             error
	header, trailer metadata.MD
}

func (a answer) status() *status.Status { return status.Convert(a.err) }

func (a answer) id() string { return a.message.(*chargesv1.CreateChargeResponse).GetCharge().GetId() }

// unmarked reports whether the answer is marked as a replay where that belongs, and returns it without the mark.
func (a answer) unmarked(t *testing.T) (answer, bool) {
	t.Helper()
	is := grpcgo.Replayed(a.header, a.trailer)
	where := &a.header
	if a.err != nil {
		where = &a.trailer
	}
	*where = where.Copy()
	if got := where.Get(idempotency.HeaderReplayed); is && !slices.Equal(got, []string{"true"}) {
		t.Errorf("the mark is %q of header %v, trailer %v", got, a.header, a.trailer)
	}
	delete(*where, idempotency.HeaderReplayed)
	return a, is
}

// equal compares all, header and trailer each for itself.
func (a answer) equal(b answer) bool {
	return proto.Equal(a.message, b.message) && proto.Equal(a.status().Proto(), b.status().Proto()) &&
		equalMetadata(a.header, b.header) && equalMetadata(a.trailer, b.trailer)
}

func equalMetadata(a, b metadata.MD) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !slices.Equal(a[name], b[name]) {
			return false
		}
	}
	return true
}

// mustSucceed fails the test where the call did not answer with the charge, replayed or not.
func (a answer) mustSucceed(t *testing.T, id string, replayed bool) {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := grpcgo.Replayed(a.header, a.trailer); a.id() != id || got != replayed {
		t.Errorf("answered %q, replayed %v; want %q, %v", a.id(), got, id, replayed)
	}
}

// mustBeRefused checks that the answer is the guard's own refusal.
func (a answer) mustBeRefused(t *testing.T, code codes.Code, reason string) {
	t.Helper()
	info := detail[*errdetails.ErrorInfo](a)
	if a.status().Code() != code || info.GetReason() != reason || info.GetDomain() != idempotency.Domain {
		t.Fatalf("got %v with %v, want %v, %s", a.err, info, code, reason)
	}
}

// detail returns the answer's detail of a type, and its zero value where it has none.
func detail[T proto.Message](a answer) (m T) {
	for _, d := range a.status().Details() {
		if found, ok := d.(T); ok {
			return found
		}
	}
	return m
}

// union is header and trailer as one.
func (a answer) union() metadata.MD { return metadata.Join(a.header, a.trailer) }

// unmarkedAnywhere is for an answer of another kind of server.
func (a answer) unmarkedAnywhere() (answer, bool) {
	is := grpcgo.Replayed(a.header, a.trailer)
	delete(a.header, idempotency.HeaderReplayed)
	delete(a.trailer, idempotency.HeaderReplayed)
	return a, is
}

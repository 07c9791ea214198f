package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestAReplayIsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 7)
	withUnknown := &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{
		Id: "ch_1", Amount: -1, Currency: "\x00", Description: "é", Status: 42, CreateTime: &timestamppb.Timestamp{Nanos: -1},
	}}
	withUnknown.ProtoReflect().SetUnknown(unknown)
	for name, reply := range map[string]idempotency.Reply{
		"a message":                       {Message: withUnknown},
		"an empty message":                {Message: &chargesv1.CreateChargeResponse{}},
		"a message of another procedure":  {Message: &chargesv1.RefundChargeResponse{Charge: &chargesv1.Charge{Id: "ch_1"}}},
		"no message, for a worker":        {},
		"a message with metadata":         withMetadata(created("ch_1")),
		"an error with metadata":          withMetadata(failed(code.Code_FAILED_PRECONDITION)),
		"an error with metadata, kept 99": withMetadata(failed(99)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true }))
			r.mustRun(t, charge("k", 1), reply)
			res := r.do(t.Context(), charge("k", 1), neverRuns(t))
			if res.err != nil || !res.replayed {
				t.Fatalf("replayed = %v, %v", res.replayed, res.err)
			}
			requireSame(t, res.reply, reply)
		})
	}
}

// withMetadata adds what is kept of metadata, awkward as it may be.
func withMetadata(r idempotency.Reply) idempotency.Reply {
	r.Header = idempotency.Metadata{"x-request-cost": {"1", "", "1"}, "x-raw": {"\xff\x00"}, "x-bin": {"AAEC"}}
	r.Trailer = idempotency.Metadata{"x-checksum": {"abc"}, "retry-after": {"3"}}
	r.ReplacedHeader, r.ReplacedTrailer = []string{"x-gone", "x-raw"}, []string{"x-checksum"}
	if r.Error != nil {
		r.Error.Metadata = idempotency.Metadata{"x-declined-by": {"bank", "network"}, "x-request-cost": {"2"}}
	}
	return r
}

// requireSame compares what a client sees.
func requireSame(t *testing.T, got, want idempotency.Reply) {
	t.Helper()
	if (got.Message == nil) != (want.Message == nil) || !proto.Equal(got.Message, want.Message) {
		t.Errorf("the message is %v, want %v", got.Message, want.Message)
	}
	if got.Message != nil && reflect.TypeOf(got.Message) != reflect.TypeOf(want.Message) {
		t.Errorf("the message is a %T, want a %T", got.Message, want.Message)
	}
	if !reflect.DeepEqual(got.Header, want.Header) || !reflect.DeepEqual(got.Trailer, want.Trailer) {
		t.Errorf("header and trailer are %q and %q, want %q and %q", got.Header, got.Trailer, want.Header, want.Trailer)
	}
	if !slices.Equal(got.ReplacedHeader, want.ReplacedHeader) || !slices.Equal(got.ReplacedTrailer, want.ReplacedTrailer) {
		t.Errorf("replaced are %q and %q, want %q and %q", got.ReplacedHeader, got.ReplacedTrailer, want.ReplacedHeader, want.ReplacedTrailer)
	}
	if got.Code() != want.Code() || (got.Error == nil) != (want.Error == nil) {
		t.Fatalf("the error is %v, want %v", got.Error, want.Error)
	}
	if want.Error == nil {
		return
	}
	if got.Error.Message != want.Error.Message || !reflect.DeepEqual(got.Error.Metadata, want.Error.Metadata) {
		t.Errorf("the error says %q with %q, want %q with %q",
			got.Error.Message, got.Error.Metadata, want.Error.Message, want.Error.Metadata)
	}
	if got.Error.Cause != nil {
		t.Errorf("the error has a cause: %v", got.Error.Cause)
	}
	if len(got.Error.Details) != len(want.Error.Details) {
		t.Fatalf("%d details, want %d", len(got.Error.Details), len(want.Error.Details))
	}
	for i, d := range want.Error.Details {
		if g := got.Error.Details[i]; g.TypeUrl != d.TypeUrl || !bytes.Equal(g.Value, d.Value) {
			t.Errorf("detail %d is %v, want %v", i, g, d)
		}
	}
}

func TestAReplayedErrorHasItsDetailsByteForByte(t *testing.T) {
	t.Parallel()
	decline, err := anypb.New(&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	// Two fields out of order, then a varint longer than it need be: valid, and no marshaller writes it so.
	odd := []byte{0x12, 0x01, 'b', 0x0a, 0x01, 'a', 0x18, 0x81, 0x00}
	reply := idempotency.Reply{Error: &idempotency.Error{
		Code:    code.Code_FAILED_PRECONDITION,
		Message: "declined \xff",
		Details: []*anypb.Any{
			decline,
			{TypeUrl: "type.googleapis.com/google.protobuf.Any", Value: odd},
			{TypeUrl: "nobody.example/knows.this.Type", Value: []byte{0xff, 0xff, 0xff}},
			decline,
			{},
		},
		Cause: errors.New("the bank's own words"),
	}}
	r := newRig(t, leased())
	r.mustRun(t, charge("k", 1), reply)
	for range 2 {
		res := r.do(t.Context(), charge("k", 1), neverRuns(t))
		if res.err != nil || !res.replayed {
			t.Fatalf("replayed = %v, %v", res.replayed, res.err)
		}
		requireSame(t, res.reply, reply)
	}
}

func TestMetadataThatIsNeverKept(t *testing.T) {
	t.Parallel()
	never := []string{
		"set-cookie", "set-cookie2", "authorization", "authentication-info", "www-authenticate", "proxy-authenticate",
		"proxy-authorization", "proxy-authentication-info",
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"accept-encoding", "accept-post", "content-encoding", "content-length", "content-type", "date", "host", "user-agent",
		"grpc-status", "grpc-message", "grpc-status-details-bin", "connect-timeout-ms", "connect-protocol-version",
		idempotency.HeaderReplayed,
	}
	given := idempotency.Metadata{"x-kept": {"yes"}, "X-Mixed": {"yes"}, "grpcurl": {"yes"}, "x-cookie": {"yes"}}
	for _, name := range append(never, "Set-Cookie", "GRPC-Status", "X-Private", "x-other", "X-Hop", "x-next-hop") {
		given[name] = []string{"no"}
	}
	given["connection"] = []string{"close, x-hop", "X-Next-Hop"}
	want := idempotency.Metadata{"x-kept": {"yes"}, "x-mixed": {"yes"}, "grpcurl": {"yes"}, "x-cookie": {"yes"}}

	for name, reply := range map[string]idempotency.Reply{
		"message": {Message: created("ch_1").Message, Header: given, Trailer: given},
		"error": {
			Error:  &idempotency.Error{Code: code.Code_NOT_FOUND, Metadata: given},
			Header: given, Trailer: given,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), idempotency.WithoutMetadata("x-private"), idempotency.WithoutMetadata("X-OTHER", "x-another"))
			r.mustRun(t, charge("k", 1), reply)
			res := r.do(t.Context(), charge("k", 1), neverRuns(t))
			if res.err != nil || !res.replayed {
				t.Fatalf("replayed = %v, %v", res.replayed, res.err)
			}
			if !reflect.DeepEqual(res.reply.Header, want) || !reflect.DeepEqual(res.reply.Trailer, want) {
				t.Errorf("header and trailer are %q and %q, want %q", res.reply.Header, res.reply.Trailer, want)
			}
			if e := res.reply.Error; e != nil && !reflect.DeepEqual(e.Metadata, want) {
				t.Errorf("the error's metadata is %q, want %q", e.Metadata, want)
			}
		})
	}
}

func TestEqualRepliesAreStoredAsEqualBytes(t *testing.T) {
	t.Parallel()
	fields := make(map[string]any) // a map has no order
	for i := range 64 {
		fields[string(rune('0'+i))] = float64(i)
	}
	r := newRig(t, leased())
	for _, key := range []string{"a", "b", "c", "d"} {
		m, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		r.mustRun(t, charge(key, 1), withMetadata(idempotency.Reply{Message: m}))
	}
	completed := r.store.completed()
	for _, c := range completed[1:] {
		if !bytes.Equal(c.record.Reply, completed[0].record.Reply) {
			t.Errorf("stored %x and %x", completed[0].record.Reply, c.record.Reply)
		}
	}
}

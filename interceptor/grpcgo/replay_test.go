package grpcgo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func keepAll(context.Context, idempotency.Call, idempotency.Reply) bool { return true }

// set sets what a handler may set, and fails where grpc does.
func set(ctx context.Context, header, trailer metadata.MD) error {
	return errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, trailer))
}

// answers are handlers, each with another kind of answer.
func answers(t *testing.T) map[string]createFunc {
	t.Helper()
	message := &chargesv1.Charge{
		Id: "ch_1", Amount: 1<<53 + 1, Currency: "USD", Description: "tab\t nul\x00 é 😀", Status: 99,
		CreateTime: &timestamppb.Timestamp{Seconds: 1 << 40, Nanos: -5},
	}
	message.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
	full := &chargesv1.CreateChargeResponse{Charge: message}
	fails := func(err error) createFunc {
		return func(context.Context, *chargesv1.CreateChargeRequest) (any, error) { return nil, err }
	}
	all := map[string]createFunc{
		"a message": func(context.Context, *chargesv1.CreateChargeRequest) (any, error) { return full, nil },
		"nothing":   func(context.Context, *chargesv1.CreateChargeRequest) (any, error) { return nil, nil },
		"a nil message": func(context.Context, *chargesv1.CreateChargeRequest) (any, error) {
			return (*chargesv1.CreateChargeResponse)(nil), nil
		},
		"a dynamic message": func(context.Context, *chargesv1.CreateChargeRequest) (any, error) {
			return dynamic(t, full), nil
		},
		"a message with header and trailer": func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			err := set(ctx, metadata.Pairs("x-several", "one", "X-Several", "two, three", "x-raw-bin", "\x00\xff=", "x-raw-bin", ""),
				metadata.Pairs("x-cost", "4", "x-cost", "2", "x-sum-bin", "\x01"))
			return full, errors.Join(err, set(ctx, metadata.Pairs("x-several", "four"), metadata.Pairs("x-cost", "0")))
		},
		"a message after its header": func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			err := grpc.SetHeader(ctx, metadata.Pairs("x-set", "1"))
			return full, errors.Join(err, grpc.SendHeader(ctx, metadata.Pairs("x-sent", "2")))
		},
		"an error after its header": func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			if err := grpc.SendHeader(ctx, metadata.Pairs("x-sent", "1")); err != nil {
				return nil, err
			}
			return nil, errorWithAll(t)
		},
		"an error with header and trailer": func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			if err := set(ctx, metadata.Pairs("x-before", "a"), metadata.Pairs("x-after", "b", "x-after-bin", "\xfe")); err != nil {
				return nil, err
			}
			return nil, errorWithAll(t)
		},
		"a plain error":                fails(errors.New("plain")),
		"a status within an error":     fails(fmt.Errorf("outside: %w", errorWithAll(t))),
		"a status beside an error":     fails(fmt.Errorf("%w: %w", status.Error(codes.NotFound, "no"), context.Canceled)),
		"cancelled":                    fails(fmt.Errorf("so: %w", context.Canceled)),
		"the deadline":                 fails(context.DeadlineExceeded),
		"a text that is not UTF-8":     fails(status.Error(codes.NotFound, "a\xffb % é\n")),
		"a code that nobody has":       fails(status.Error(99, "odd")),
		"an error whose status is nil": fails(withoutStatusError{}),
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		all["code "+c.String()] = fails(status.Error(c, "no: "+c.String()))
	}
	return all
}

type withoutStatusError struct{}

func (withoutStatusError) Error() string              { return "no status" }
func (withoutStatusError) GRPCStatus() *status.Status { return nil }

func errorWithAll(t *testing.T) error {
	t.Helper()
	known, err := anypb.New(&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	return status.FromProto(&statuspb.Status{
		Code: int32(codes.FailedPrecondition), Message: "declined:\n é 100%",
		Details: []*anypb.Any{known, {TypeUrl: "types.example.com/elsewhere.v1.NotLinked", Value: []byte{8, 1, 0xff}}},
	}).Err()
}

// dynamic is a message of the same content without its Go type.
func dynamic(t *testing.T, m proto.Message) *dynamicpb.Message {
	t.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d := dynamicpb.NewMessage(m.ProtoReflect().Descriptor())
	if err := proto.Unmarshal(encoded, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The first caller gets what an unguarded one does, and a retry the same, but for the mark.
func TestAnswersAreAsWithoutTheGuard(t *testing.T) {
	for name, makeBackend := range backends {
		t.Run(name, func(t *testing.T) {
			g := makeBackend(t).guard(t, idempotency.WithKeep(keepAll))
			for name, handler := range answers(t) {
				unguarded := dial(t, serve(t, charges(handler), passOn)).create(within(t), "", "")
				client := guarded(t, g, handler)
				first, marked := client.create(within(t), fmt.Sprintf("%x", name), "").unmarked(t)
				if marked || !first.equal(unguarded) {
					t.Errorf("%s: marked %v\nfirst     %+v\nunguarded %+v", name, marked, first, unguarded)
				}
				replay, marked := client.create(within(t), fmt.Sprintf("%x", name), "").unmarked(t)
				if !marked || !replay.equal(unguarded) {
					t.Errorf("%s: marked %v\nreplay    %+v\nunguarded %+v", name, marked, replay, unguarded)
				}
			}
		})
	}
}

// passOn is an interceptor that does nothing.
func passOn(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(ctx, req)
}

// A server that has just started replays what another one stored, in the generated type for those who stand outside.
func TestReplayByAnotherServer(t *testing.T) {
	for name, makeBackend := range backends {
		t.Run(name, func(t *testing.T) {
			b := makeBackend(t)
			guarded(t, b.guard(t), respond).create(within(t), "k", "").mustSucceed(t, "ch_1", false)
			var seen string
			outer := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				res, err := handler(ctx, req)
				if m, ok := res.(*chargesv1.CreateChargeResponse); ok {
					seen = m.GetCharge().GetId()
				}
				return res, err
			}
			guarded(t, b.guard(t), nil, outer).create(within(t), "k", "").mustSucceed(t, "ch_1", true)
			if seen != "ch_1" {
				t.Errorf("the outer interceptor saw %q", seen)
			}
		})
	}
}

// A reply that a server of Connect stored comes with all of its metadata: an error's own, which Connect has apart, in the
// trailer, as Connect sends it over gRPC.
func TestReplyThatConnectStored(t *testing.T) {
	g := backends["memory"](t).guard(t)
	stored := idempotency.Reply{
		Header:  idempotency.Metadata{"x-header": {"h"}, "x-padded-bin": {"AA==", "not base64"}},
		Trailer: idempotency.Metadata{"x-both": {"trailer"}},
		Error: &idempotency.Error{
			Code: code.Code_NOT_FOUND, Message: "no", Metadata: idempotency.Metadata{"x-both": {"meta"}, "x-meta-bin": {"_w", "/w"}},
		},
	}
	call := idempotency.Call{Procedure: create, Keys: []string{"k"}, Request: &chargesv1.CreateChargeRequest{
		Amount: 1299, Currency: "USD", CardToken: "tok_ok",
	}}
	if _, _, err := g.Do(within(t), call, func(context.Context) idempotency.Reply { return stored }); err != nil {
		t.Fatal(err)
	}
	got := guarded(t, g, nil).create(within(t), "k", "")
	if got.status().Code() != codes.NotFound || got.status().Message() != "no" {
		t.Errorf("the error is %v", got.err)
	}
	for _, want := range []struct {
		in     metadata.MD
		name   string
		values []string
	}{
		{got.header, "x-header", []string{"h"}},
		{got.header, "x-padded-bin", []string{"\x00", "not base64"}},
		{got.trailer, "x-both", []string{"trailer", "meta"}},
		{got.trailer, "x-meta-bin", []string{"_w", "\xff"}},
		{got.trailer, idempotency.HeaderReplayed, []string{"true"}},
		{got.header, idempotency.HeaderReplayed, nil},
	} {
		if values := want.in.Get(want.name); !slices.Equal(values, want.values) {
			t.Errorf("%s is %q, want %q", want.name, values, want.values)
		}
	}
}

// What is stored is in the form that all adapters share: lower-case names, base64 without padding.
func TestWhatIsStored(t *testing.T) {
	var stored idempotency.Reply
	keep := func(_ context.Context, c idempotency.Call, r idempotency.Reply) bool {
		if c.Method == nil || c.Method.FullName() != protoreflect.FullName(serviceName+".CreateCharge") {
			t.Errorf("the method is %v", c.Method)
		}
		stored = r
		return true
	}
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		return nil, errors.Join(set(ctx, metadata.Pairs("X-Name", "a"), metadata.Pairs("x-raw-bin", "\x00\xff")), errors.New("no"))
	}
	guarded(t, backends["memory"](t).guard(t, idempotency.WithKeep(keep)), handler).create(within(t), "k", "")
	if !slices.Equal(stored.Header["x-name"], []string{"a"}) || !slices.Equal(stored.Trailer["x-raw-bin"], []string{"AP8"}) {
		t.Errorf("stored %q and %q", stored.Header, stored.Trailer)
	}
	if stored.Error.Message != "no" || stored.Error.Code != code.Code_UNKNOWN {
		t.Errorf("stored %v", stored.Error)
	}
}

// Credentials are the first caller's own.
func TestCredentialsAreNotReplayed(t *testing.T) {
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		return created("ch_1"), set(ctx, metadata.Pairs("set-cookie", "session"), metadata.Pairs("authorization", "token"))
	}
	client := guarded(t, backends["memory"](t).guard(t), handler)
	for _, want := range []int{2, 0} {
		a := client.create(within(t), "k", "")
		if n := len(a.header["set-cookie"]) + len(a.trailer["authorization"]); n != want {
			t.Errorf("%d credentials, want %d", n, want)
		}
	}
}

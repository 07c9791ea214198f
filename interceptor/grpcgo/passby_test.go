package grpcgo_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

type neverClaimed struct {
	store.Store
	t *testing.T
}

func (s neverClaimed) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	s.t.Errorf("claimed %v, %s", c.ID, c.Procedure)
	return s.Store.Claim(ctx, c)
}

// Reads, streams, other procedures' policies and calls without a key pass by.
func TestPassingBy(t *testing.T) {
	b := backends["memory"](t)
	b.store = neverClaimed{b.store, t}
	off := idempotency.WithPolicy(func(c idempotency.Call, p idempotency.Policy) idempotency.Policy {
		p.Off = c.Request.(*chargesv1.CreateChargeRequest).Description == "off"
		return p
	})
	client := guarded(t, b.guard(t, off), respond)
	client.create(within(t), "", "").mustSucceed(t, "ch_1", false)
	client.create(within(t), "k", "off").mustSucceed(t, "ch_1", false)
	if a := client.call(withKey(within(t), "k"), get, new(chargesv1.GetChargeRequest), new(chargesv1.GetChargeResponse)); a.err != nil {
		t.Error(a.err)
	}
	stream, err := client.NewStream(withKey(within(t), "k"), &grpc.StreamDesc{ServerStreams: true}, list)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(new(chargesv1.ListChargesRequest)), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new(chargesv1.ListChargesResponse)); err != nil {
		t.Error(err)
	}
	if err := stream.RecvMsg(new(chargesv1.ListChargesResponse)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// A call without a key costs no allocation.
func TestCallWithoutKeyAllocatesNothing(t *testing.T) {
	intercept := interceptorOf(backends["memory"](t).guard(t))
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user-agent", "x", "content-type", "application/grpc"))
	info := &grpc.UnaryServerInfo{FullMethod: create}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	var req any = new(chargesv1.CreateChargeRequest)
	if n := testing.AllocsPerRun(100, func() { _, _ = intercept(ctx, req, info, handler) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// A key comes in the metadata that the guard names, in either case, and in both of its forms.
func TestKeysMetadata(t *testing.T) {
	client := guarded(t, backends["memory"](t).guard(t, idempotency.WithHeader("X-Request-Key")), respond)
	for i, key := range []string{"k-1", `"k-1"`} {
		ctx := metadata.AppendToOutgoingContext(within(t), "x-request-key", key)
		client.create(ctx, "", "").mustSucceed(t, "ch_1", i == 1)
	}
	client.create(within(t), "k-1", "").mustSucceed(t, "ch_1", false) // the default's name means nothing here
}

// A keyed call whose request the guard cannot fingerprint is refused, never run unguarded.
func TestRequestIsNoMessage(t *testing.T) {
	intercept := interceptorOf(backends["memory"](t).guard(t))
	handler := func(context.Context, any) (any, error) {
		t.Error("it ran")
		return nil, nil
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
	_, err := intercept(ctx, "text", &grpc.UnaryServerInfo{FullMethod: "/text/Send"}, handler)
	if status.Code(err) != codes.Internal || idempotency.ReasonOf(err) != idempotency.ReasonMisconfigured {
		t.Errorf("got %v", err)
	}
}

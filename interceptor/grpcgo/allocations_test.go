package grpcgo_test

import (
	"context"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/internal/race"
)

// Guard and interceptor make no more than so many allocations for a charge, the memory store's among them; a handler that
// is called directly makes none. Whoever saves one lowers its number here. For a call without a key there are none at all,
// which TestCallWithoutKeyAllocatesNothing holds.
func TestAllocations(t *testing.T) {
	l := newLocal(interceptorOf(backends["memory"](t).guard(t)))
	var calls []context.Context
	for i := range 201 { // AllocsPerRun warms up once
		calls = append(calls, l.incoming(t, strconv.Itoa(i)))
	}
	for _, test := range []struct {
		name string
		most float64
	}{
		{"first call", 30},
		{"replay", 18},
	} {
		if race.Enabled {
			test.most += 2
		}
		next := 0
		n := testing.AllocsPerRun(len(calls)-1, func() {
			l.call(calls[next], t)
			next++
		})
		if n > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, n, test.most)
		}
	}
}

// local is a guarded handler that is called without a network.
type local struct {
	intercept grpc.UnaryServerInterceptor
	info      *grpc.UnaryServerInfo
	req       any
	handler   grpc.UnaryHandler
}

func newLocal(intercept grpc.UnaryServerInterceptor) local {
	res := created("ch_1")
	return local{
		intercept: intercept,
		info:      &grpc.UnaryServerInfo{FullMethod: create},
		req:       &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD", CardToken: "tok_ok"},
		handler:   func(context.Context, any) (any, error) { return res, nil },
	}
}

// incoming is the context of a call with a key, or of one without where key is empty.
func (local) incoming(t testing.TB, key string) context.Context {
	t.Helper()
	md := metadata.Pairs("content-type", "application/grpc")
	if key != "" {
		md.Set("idempotency-key", key)
	}
	return metadata.NewIncomingContext(grpc.NewContextWithServerTransportStream(t.Context(), new(transportStream)), md)
}

func (l local) call(ctx context.Context, t testing.TB) {
	t.Helper()
	if res, err := l.intercept(ctx, l.req, l.info, l.handler); err != nil || res == nil {
		t.Fatal(res, err)
	}
}

// transportStream is a call's, which takes metadata and sends nothing.
type transportStream struct{ header metadata.MD }

func (*transportStream) Method() string                    { return create }
func (s *transportStream) SetHeader(md metadata.MD) error  { s.header = md; return nil }
func (s *transportStream) SendHeader(md metadata.MD) error { return s.SetHeader(md) }
func (*transportStream) SetTrailer(metadata.MD) error      { return nil }

package grpcgo_test

import (
	"context"
	"strconv"
	"testing"

	"google.golang.org/grpc"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

func benchLocal(b *testing.B) local {
	b.Helper()
	g, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		b.Fatal(err)
	}
	return newLocal(interceptorOf(g))
}

// BenchmarkFirstCall is what guard and interceptor need around a handler that does nothing, with the call's context.
func BenchmarkFirstCall(b *testing.B) {
	l := benchLocal(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.call(l.incoming(b, strconv.Itoa(i)), b)
	}
}

// BenchmarkReplay answers from what is stored.
func BenchmarkReplay(b *testing.B) {
	l := benchLocal(b)
	ctx := l.incoming(b, "k")
	l.call(ctx, b)
	b.ReportAllocs()
	for b.Loop() {
		l.call(ctx, b)
	}
}

// BenchmarkWithoutKey compares a call without a key with the same call without the interceptor.
func BenchmarkWithoutKey(b *testing.B) {
	bare := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, req)
	}
	for name, l := range map[string]local{"bare": newLocal(bare), "guarded": benchLocal(b)} {
		b.Run(name, func(b *testing.B) {
			ctx := l.incoming(b, "")
			b.ReportAllocs()
			for b.Loop() {
				l.call(ctx, b)
			}
		})
	}
}

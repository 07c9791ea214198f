package interceptor_test

import (
	"strconv"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

func benchLocal(b *testing.B) local {
	b.Helper()
	g, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		b.Fatal(err)
	}
	return newLocal(b, interceptor.New(g))
}

// BenchmarkFirstCall is a whole call, without a network, whose handler does nothing.
func BenchmarkFirstCall(b *testing.B) {
	l := benchLocal(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.call(b, strconv.Itoa(i))
	}
}

// BenchmarkReplay is such a call that is answered from what is stored.
func BenchmarkReplay(b *testing.B) {
	l := benchLocal(b)
	l.call(b, "k")
	b.ReportAllocs()
	for b.Loop() {
		l.call(b, "k")
	}
}

// BenchmarkUnguarded is such a call without the interceptor.
func BenchmarkUnguarded(b *testing.B) {
	l := newLocal(b)
	b.ReportAllocs()
	for b.Loop() {
		l.call(b, "k")
	}
}

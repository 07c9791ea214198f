package connectv2_test

import (
	"strconv"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

func benchLocal(b *testing.B) local {
	b.Helper()
	g, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		b.Fatal(err)
	}
	return newLocal(b, connectv2.NewServerInterceptor(g))
}

// BenchmarkFirstCall is a whole call, within the process, whose handler does nothing.
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

// BenchmarkWithoutKey compares a call without a key with the same call without the interceptor.
func BenchmarkWithoutKey(b *testing.B) {
	for name, l := range map[string]local{"bare": newLocal(b), "guarded": benchLocal(b)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.call(b, "")
			}
		})
	}
}

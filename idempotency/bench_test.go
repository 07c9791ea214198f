package idempotency_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

func benchGuard(b testing.TB) *idempotency.Guard {
	b.Helper()
	g, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// BenchmarkFirstCall is what the guard adds to a handler that does nothing: all but the store's round trips.
func BenchmarkFirstCall(b *testing.B) {
	g := benchGuard(b)
	reply := created("ch_1")
	run := func(context.Context) idempotency.Reply { return reply }
	c := charge("", 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Keys[0] = strconv.Itoa(i)
		if _, replayed, err := g.Do(b.Context(), c, run); err != nil || replayed {
			b.Fatalf("replayed = %v, %v; want a run", replayed, err)
		}
	}
}

// BenchmarkReplay is what the guard needs to answer from a stored reply.
func BenchmarkReplay(b *testing.B) {
	g := benchGuard(b)
	reply := created("ch_1")
	c := charge("k", 1)
	run := func(context.Context) idempotency.Reply { return reply }
	if _, _, err := g.Do(b.Context(), c, run); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, replayed, err := g.Do(b.Context(), c, run); err != nil || !replayed {
			b.Fatalf("replayed = %v, %v; want a replay", replayed, err)
		}
	}
}

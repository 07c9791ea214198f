package memory_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// full returns a store of n completed rows.
func full(b *testing.B, n int) *memory.Store {
	b.Helper()
	s := memory.New()
	for i := range n {
		c := newClaim(store.ID{Scope: "tenant", Key: "row-" + strconv.Itoa(i)}, time.Hour, time.Minute)
		if err := win(b, s, c).Complete(b.Context(), record(), false); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkClaimComplete is a first call's part of the store. The key is forgotten each time, so that the store keeps its
// size, and that is measured with it.
func BenchmarkClaimComplete(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run("rows="+strconv.Itoa(n), func(b *testing.B) {
			s := full(b, n)
			c := newClaim(store.ID{Scope: "tenant", Key: "0b5f1c2e-5f5f-4d0e-9f6e-2f4c7a1f3b11"}, time.Hour, time.Minute)
			ctx, r := b.Context(), record()
			b.ReportAllocs()
			for b.Loop() {
				if err := win(b, s, c).Complete(ctx, r, false); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Forget(ctx, c.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReplay is a claim that finds a record.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run("rows="+strconv.Itoa(n), func(b *testing.B) {
			s := full(b, n+1)
			c := newClaim(store.ID{Scope: "tenant", Key: "row-" + strconv.Itoa(n/2)}, time.Hour, time.Minute)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if found, _, err := s.Claim(ctx, c); err != nil || found.State != store.Completed {
					b.Fatal(found, err)
				}
			}
		})
	}
}

// BenchmarkReplayParallel is what BenchmarkReplay is, by all processors at once.
func BenchmarkReplayParallel(b *testing.B) {
	s := full(b, 1)
	c := newClaim(store.ID{Scope: "tenant", Key: "row-0"}, time.Hour, time.Minute)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if found, _, err := s.Claim(ctx, c); err != nil || found.State != store.Completed {
				b.Error(found, err)
				return
			}
		}
	})
}

// BenchmarkSweep deletes all rows of a store of 100,000, which expire in the order in which they were claimed. It reports
// the time of one row.
func BenchmarkSweep(b *testing.B) {
	const rows = 100_000
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := memory.New()
		for i := range rows {
			win(b, s, newClaim(store.ID{Scope: "tenant", Key: strconv.Itoa(i)}, 1, 1))
		}
		b.StartTimer()
		if _, n, err := s.Sweep(b.Context(), store.Cursor{}, rows); n != rows || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
}

package memory_test

import (
	"strconv"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// BenchmarkLook is one look at many keys, each of which is settled.
func BenchmarkLook(b *testing.B) {
	const rows = 1000
	for _, n := range []int{1, rows} {
		b.Run("keys="+strconv.Itoa(n), func(b *testing.B) {
			s := full(b, rows)
			ids := make([]store.ID, n)
			for i := range ids {
				ids[i] = store.ID{Scope: "tenant", Key: "row-" + strconv.Itoa(i)}
			}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if found, err := s.Look(ctx, ids); err != nil || found[n-1].State != store.Completed {
					b.Fatal(found[n-1], err)
				}
			}
		})
	}
}

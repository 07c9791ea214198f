package postgres_test

import (
	"strconv"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// BenchmarkClaimComplete is a first call's part of the store, by one caller, on a server that does not wait for the disk.
func BenchmarkClaimComplete(b *testing.B) {
	for _, mode := range []string{"leased", "transactional"} {
		b.Run("mode="+mode, func(b *testing.B) {
			s := newStore(b, mode, newPool(b, maxConns(1)))
			r := done("a reply of the usual size, which is not long")
			b.ReportAllocs()
			for b.Loop() {
				complete(b, win(b, s, newClaim()), r)
			}
		})
	}
}

// BenchmarkReplay is a claim that finds a record, of a key that the store has settled itself.
func BenchmarkReplay(b *testing.B) {
	for _, mode := range []string{"leased", "transactional"} {
		b.Run("mode="+mode, func(b *testing.B) {
			s := newStore(b, mode, newPool(b, maxConns(1)))
			c := newClaim()
			complete(b, win(b, s, c), done("a reply of the usual size, which is not long"))
			b.ReportAllocs()
			for b.Loop() {
				lose(b, s, c)
			}
		})
	}
}

// BenchmarkReplayElsewhere is such a claim of a key that the store meets for the first time. A transactional one's rollback
// goes with it.
func BenchmarkReplayElsewhere(b *testing.B) {
	for _, mode := range []string{"leased", "transactional"} {
		b.Run("mode="+mode, func(b *testing.B) {
			pool := newPool(b, maxConns(1))
			s, elsewhere := newStore(b, mode, pool), newStore(b, mode, pool)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c := newClaim()
				complete(b, win(b, elsewhere, c), done("a reply of the usual size, which is not long"))
				b.StartTimer()
				lose(b, s, c)
				drain(b, s)
			}
		})
	}
}

// BenchmarkLook is one look at many keys, each of which is settled.
func BenchmarkLook(b *testing.B) {
	for _, mode := range []string{"leased", "transactional"} {
		for _, n := range []int{1, 1000} {
			b.Run("mode="+mode+"/keys="+strconv.Itoa(n), func(b *testing.B) {
				s := newStore(b, mode, newPool(b, maxConns(1)))
				ids := make([]store.ID, n)
				for i := range ids {
					c := newClaim()
					complete(b, win(b, s, c), done("a reply of the usual size, which is not long"))
					ids[i] = c.ID
				}
				b.ReportAllocs()
				for b.Loop() {
					if found, err := s.Look(b.Context(), ids); err != nil || found[n-1].State != store.Completed {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

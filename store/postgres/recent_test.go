package postgres_test

import (
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// What a store remembers of a key is a guess, which another store's doing makes wrong: the claim goes by the table.
func TestWhatIsRememberedChangesNoAnswer(t *testing.T) {
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			url := newDatabase(t)
			s, other := newStore(t, mode, poolOn(t, url)), newStore(t, "leased", poolOn(t, url))
			settled := func(t *testing.T) store.Claim {
				t.Helper()
				c := newClaim()
				complete(t, win(t, s, c), done("reply"))
				return c
			}
			forget := func(t *testing.T, c store.Claim) {
				t.Helper()
				if gone, err := other.Forget(t.Context(), c.ID); err != nil || !gone {
					t.Fatalf("forgot = %v, %v", gone, err)
				}
			}
			t.Run("forgotten elsewhere", func(t *testing.T) {
				c := settled(t)
				forget(t, c)
				complete(t, win(t, s, again(c)), done("another"))
				if found := lose(t, s, again(c)); string(found.Record.Reply) != "another" {
					t.Errorf("found %+v", found)
				}
			})
			t.Run("claimed elsewhere", func(t *testing.T) {
				c := settled(t)
				forget(t, c)
				a := win(t, other, again(c))
				if found := lose(t, s, again(c)); found.State != store.InProgress {
					t.Errorf("found %+v, want it in progress", found)
				}
				complete(t, a, done("another"))
				if found := lose(t, s, again(c)); string(found.Record.Reply) != "another" {
					t.Errorf("found %+v", found)
				}
			})
			t.Run("lease over elsewhere", func(t *testing.T) {
				c := settled(t)
				forget(t, c)
				short := again(c)
				short.Lease = time.Microsecond
				win(t, other, short)
				for found := (store.Found{}); !found.LeaseOver(); {
					found = lose(t, s, again(c))
				}
			})
		})
	}
}

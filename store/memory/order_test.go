package memory_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// pass lets d go by on the clock of synctest, which stands still otherwise. It takes no time.
func pass(d time.Duration) { <-time.After(d) }

func TestRowsExpireOnTheDot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := newClaim(store.ID{Key: "key"}, time.Minute, time.Second)
		if err := win(t, s, c).Complete(t.Context(), record(), false); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute - 1)
		if found := row(t, s, c.ID); found.Expired {
			t.Errorf("expired a nanosecond early: %+v", found)
		}
		pass(1)
		if found := row(t, s, c.ID); !found.Expired {
			t.Errorf("not expired in time: %+v", found)
		}
	})
}

func TestLeasesEndOnTheDot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := newClaim(store.ID{Key: "key"}, time.Minute, time.Second)
		win(t, s, c)
		pass(time.Second - 1)
		if found := row(t, s, c.ID); found.LeaseOver() || found.LeaseLeft != 1 {
			t.Errorf("a nanosecond before its end the lease is %+v", found)
		}
		pass(1)
		if found := row(t, s, c.ID); !found.LeaseOver() || found.LeaseLeft != 0 {
			t.Errorf("at its end the lease is %+v", found)
		}
	})
}

func TestSweepOrdersRowsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ids := []store.ID{
			{Scope: "b", Key: "1"}, {Scope: "a", Key: "2"}, {Scope: "a", Key: "1"}, {Scope: "", Key: "3"}, {Scope: "a", Key: "10"},
		}
		for _, id := range ids {
			win(t, s, newClaim(id, time.Minute, time.Second))
		}
		pass(time.Minute)
		now := time.Now()
		slices.SortFunc(ids, compareIDs)
		var at store.Cursor
		for _, id := range ids {
			next, n, err := s.Sweep(t.Context(), at, 1)
			if n != 1 || err != nil {
				t.Fatalf("Sweep deleted %d rows with error %v, want 1", n, err)
			}
			if next.ID != id || !next.ExpiresAt.Equal(now) {
				t.Errorf("Sweep went to %v, want %v at %v", next, id, now)
			}
			at = next
		}
	})
}

func compareIDs(a, b store.ID) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key))
}

// model is what a row should be.
type model struct {
	claim   store.Claim
	attempt store.Attempt
	expires time.Time
	lease   time.Time // zero once completed
}

func (m *model) end() time.Time {
	if m.lease.After(m.expires) {
		return m.lease
	}
	return m.expires
}

// TestSweepAgreesWithAModel makes thousands of random calls, and sweeps in between, one row at a time.
func TestSweepAgreesWithAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		s, rows := memory.New(), map[store.ID]*model{}
		var at store.Cursor
		for range 5_000 {
			id := store.ID{Scope: fmt.Sprint(random.IntN(3)), Key: fmt.Sprint(random.IntN(20))}
			change(t, random, s, rows, id)
			pass(time.Duration(random.IntN(300)) * time.Millisecond)
			if random.IntN(20) == 0 {
				at = sweepAll(t, s, rows, at)
			}
		}
		pass(time.Hour)
		sweepAll(t, s, rows, at)
		if len(rows) > 0 {
			t.Fatalf("%d rows were left", len(rows))
		}
	})
}

// change makes one call on id, to s and to the model.
func change(t *testing.T, random *rand.Rand, s *memory.Store, rows map[store.ID]*model, id store.ID) {
	t.Helper()
	lease := time.Duration(1+random.IntN(5)) * time.Second
	m := rows[id]
	if m == nil {
		c := newClaim(id, 2*lease+time.Duration(random.IntN(10))*time.Second, lease)
		rows[id] = &model{c, win(t, s, c), time.Now().Add(c.TTL), time.Now().Add(lease)}
		return
	}
	switch action := random.IntN(8); {
	case action == 0:
		delete(rows, id)
		if existed, err := s.Forget(t.Context(), id); !existed || err != nil {
			t.Fatalf("Forget returned %v, %v", existed, err)
		}
	case m.lease.IsZero():
		// Completed: nothing else changes it.
	case action <= 2:
		delete(rows, id)
		if err := m.attempt.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	case action <= 4:
		if lost, err := s.Renew(t.Context(), []store.Held{{ID: id, Token: m.claim.Token}}, 4*lease); len(lost) > 0 || err != nil {
			t.Fatalf("Renew returned %v, %v", lost, err)
		}
		m.lease = time.Now().Add(4 * lease)
	default:
		if err := m.attempt.Complete(t.Context(), record(), false); err != nil {
			t.Fatal(err)
		}
		m.lease = time.Time{}
		if least := time.Now().Add(m.claim.Lease); m.expires.Before(least) {
			m.expires = least
		}
	}
}

// sweepAll sweeps what the model says, in the model's order, and nothing else.
func sweepAll(t *testing.T, s *memory.Store, rows map[store.ID]*model, at store.Cursor) store.Cursor {
	t.Helper()
	expired := slices.SortedFunc(maps.Keys(rows), func(a, b store.ID) int {
		return cmp.Or(rows[a].end().Compare(rows[b].end()), compareIDs(a, b))
	})
	for _, id := range expired {
		if rows[id].end().After(time.Now()) {
			break
		}
		next, n, err := s.Sweep(t.Context(), at, 1)
		if n != 1 || err != nil || next.ID != id || !next.ExpiresAt.Equal(rows[id].end()) {
			t.Fatalf("Sweep went to %v, deleted %d and returned %v, want %v at %v", next, n, err, id, rows[id].end())
		}
		delete(rows, id)
		at = next
	}
	next, n, err := s.Sweep(t.Context(), at, 1)
	if n != 0 || err != nil || next != at {
		t.Fatalf("Sweep went to %v, deleted %d and returned %v, want nothing more", next, n, err)
	}
	return at
}

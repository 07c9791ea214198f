package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func sweepTests() []subtest {
	return []subtest{
		{"nothing to delete", anyStore, sweepNothing},
		{"deletes expired rows", anyStore, sweepExpired},
		{"deletes expired claims", leasedRows, sweepAbandoned},
		{"leaves records alone that live", anyStore, sweepRecords},
		{"leaves a live claim alone", leasedRows, sweepLive},
		{"leaves a claim alone that may be taken over", leasedRows, sweepOverdue},
		{"leaves a live claim alone whose life is over", leasedRows, sweepRenewed},
		{"leaves an attempt alone that took an expired key", anyStore, sweepTakenOver},
		{"deletes as many as it may, from the beginning", anyStore, sweepLimit},
		{"goes on where the last one ended", anyStore, sweepGoesOn},
		{"goes on to what expires later", anyStore, sweepLater},
		{"several at once delete each row once", anyStore, sweepAtOnce},
		{"largest limit", anyStore, sweepMost},
	}
}

func numberedIDs(n int) []store.ID {
	ids := make([]store.ID, n)
	for i := range ids { // not in the order in which they expire
		ids[i] = store.ID{Scope: fmt.Sprintf("tenant-%d", i%3), Key: fmt.Sprintf("key-%d", (i*11+3)%n)}
	}
	return ids
}

func (r rig) sweeps(t *testing.T, limit, want int) {
	t.Helper()
	if _, deleted := r.sweep(t, store.Cursor{}, limit); deleted != want {
		t.Fatalf("Sweep deleted %d rows, want %d", deleted, want)
	}
}

func (r rig) allAbsent(t *testing.T, ids []store.ID) {
	t.Helper()
	for _, found := range r.look(t, r.store, ids...) {
		absent(t, "after Sweep", found)
	}
}

func sweepNothing(t *testing.T, r rig) {
	next, deleted := r.sweep(t, store.Cursor{}, 10)
	if deleted != 0 {
		t.Fatalf("Sweep of an empty store deleted %d rows", deleted)
	}
	r.expired(t, record("reply"), someID())
	if _, deleted := r.sweep(t, next, 10); deleted != 1 {
		t.Fatalf("Sweep that went on deleted %d rows, want the one that expired since", deleted)
	}
}

func sweepExpired(t *testing.T, r rig) {
	ids := numberedIDs(5)
	r.expired(t, record("reply"), ids[:3]...)
	r.expired(t, notKept(), ids[3:]...)
	r.sweeps(t, 10, 5)
	r.allAbsent(t, ids)
	c := longClaim(ids[0])
	numbered(t, r.win(t, r.store, c), c, 1)
}

func sweepAbandoned(t *testing.T, r rig) {
	r.abandoned(t, someID())
	r.sweeps(t, 10, 1)
	absent(t, "after Sweep", r.row(t, someID()))
}

func sweepRecords(t *testing.T, r rig) {
	kept, dropped := store.ID{Scope: "tenant-1", Key: "kept"}, store.ID{Scope: "tenant-1", Key: "dropped"}
	k, d := r.completed(t, kept, record("reply")), r.completed(t, dropped, notKept())
	r.expired(t, record("expired"), someID())
	r.sweeps(t, 10, 1)
	same(t, "after Sweep", r.row(t, kept), recordOf(k, 1, record("reply")))
	same(t, "after Sweep", r.row(t, dropped), recordOf(d, 1, notKept()))
}

func sweepLive(t *testing.T, r rig) {
	c := longClaim(someID())
	h := r.win(t, r.leased, c)
	r.sweeps(t, 10, 0)
	same(t, "after Sweep", r.row(t, someID()), claimOf(c, 1))
	h.complete(t, record("reply"))
}

func sweepOverdue(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	r.sweeps(t, 10, 0)
	c := longClaim(someID())
	numbered(t, r.winOver(t, r.store, c, first.Token), c, 2)
}

func sweepRenewed(t *testing.T, r rig) {
	h, c := r.renewedBeyondLife(t, someID())
	r.sweeps(t, 10, 0)
	same(t, "after Sweep", r.row(t, someID()), claimOf(c, 1))
	h.complete(t, record("reply"))
}

func sweepTakenOver(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	c := longClaim(someID())
	h := r.winOver(t, r.store, c, first.Token)
	r.sweep(t, store.Cursor{}, 10)
	h.complete(t, record("new"))
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(c, 1, record("new")))
}

func sweepLimit(t *testing.T, r rig) {
	ids := numberedIDs(7)
	r.expired(t, record("reply"), ids...)
	for _, want := range []int{3, 3, 1, 0} {
		r.sweeps(t, 3, want)
	}
	r.allAbsent(t, ids)
}

func sweepGoesOn(t *testing.T, r rig) {
	ids := numberedIDs(25)
	r.expired(t, record("reply"), ids...)
	var at store.Cursor
	for _, want := range []int{10, 10, 5, 0} {
		next, deleted := r.sweep(t, at, 10)
		if deleted != want {
			t.Fatalf("Sweep with limit 10 deleted %d rows, want %d", deleted, want)
		}
		at = next
	}
	r.allAbsent(t, ids)
}

func sweepLater(t *testing.T, r rig) {
	ids := numberedIDs(8)
	var at store.Cursor
	for batch := range 4 {
		r.expired(t, record("reply"), ids[batch*2:batch*2+2]...)
		next, deleted := r.sweep(t, at, 10)
		if deleted != 2 {
			t.Fatalf("Sweep that went on deleted %d rows, want the 2 that expired since", deleted)
		}
		at = next
	}
	r.allAbsent(t, ids)
}

func sweepAtOnce(t *testing.T, r rig) {
	sweepTogether(t, r, r.store, r.store, r.store, r.store)
}

// sweepTogether has each of stores delete until there is no more, all at once.
func sweepTogether(t *testing.T, r rig, stores ...store.Store) {
	t.Helper()
	const limit = 7
	ids := numberedIDs(200)
	r.expired(t, record("reply"), ids...)
	type swept struct {
		rows int
		err  error
	}
	sum := 0
	for _, s := range atOnce(t, r, "several Sweeps at once", len(stores), func(ctx context.Context, i int) (s swept) {
		at, deleted := store.Cursor{}, limit
		for deleted == limit && s.err == nil {
			at, deleted, s.err = stores[i].Sweep(ctx, at, limit)
			s.rows += deleted
		}
		return s
	}) {
		if s.err != nil {
			t.Fatalf("Sweep: %v", s.err)
		}
		sum += s.rows
	}
	if sum != len(ids) {
		t.Fatalf("the sweeps deleted %d rows in sum, of %d", sum, len(ids))
	}
	r.allAbsent(t, ids)
}

func sweepMost(t *testing.T, r rig) {
	r.expired(t, record("reply"), someID())
	r.sweeps(t, store.MaxSweep, 1)
}

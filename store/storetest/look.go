package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func lookTests() []subtest {
	return []subtest{
		{"absent key", anyStore, lookAbsent},
		{"key in progress", leasedRows, lookInProgress},
		{"transactional attempt in flight is out of sight or absent", transactionalStore, lookInFlight},
		{"expired key is in the state it was in", anyStore, lookExpired},
		{"keeps the order of the keys", anyStore, lookOrder},
		{"answers for a key as often as it is asked", anyStore, lookTwice},
		{"at none", anyStore, lookNone},
		{"at as many as are allowed", anyStore, lookMost},
		{"claims nothing", anyStore, lookOnly},
		{"context that has ended is an error", anyStore, lookCancelled},
	}
}

func lookAbsent(t *testing.T, r rig) {
	same(t, "Look", r.row(t, someID()), store.Found{ID: someID()})
}

func lookInProgress(t *testing.T, r rig) {
	c := longClaim(someID())
	r.win(t, r.leased, c)
	found := r.row(t, someID())
	same(t, "Look", found, claimOf(c, 1))
	leaseWithin(t, found, c.Lease)
}

func lookInFlight(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	if found := r.row(t, someID()); !found.OutOfSight() {
		absent(t, "Look", found)
	}
	h.complete(t, record("reply"))
}

func lookExpired(t *testing.T, r rig) {
	kept, dropped := store.ID{Scope: "tenant-1", Key: "kept"}, store.ID{Scope: "tenant-1", Key: "dropped"}
	k, d := r.expired(t, record("reply"), kept)[0], r.expired(t, notKept(), dropped)[0]
	same(t, "Look", r.row(t, kept), expiredOf(recordOf(k, 1, record("reply"))))
	same(t, "Look", r.row(t, dropped), expiredOf(recordOf(d, 1, notKept())))
}

func lookOrder(t *testing.T, r rig) {
	var ids []store.ID
	var want []store.Found
	for i := range 12 { // in an order that is neither theirs nor its reverse
		id := store.ID{Scope: fmt.Sprintf("tenant-%d", i*5%12), Key: fmt.Sprintf("key-%d", i*7%12)}
		ids = append(ids, id)
		if i%3 == 1 {
			want = append(want, store.Found{ID: id})
			continue
		}
		rec := record(id.Key)
		want = append(want, recordOf(r.completed(t, id, rec), 1, rec))
	}
	for i, found := range r.look(t, r.store, ids...) {
		same(t, fmt.Sprintf("Look at %d", i), found, want[i])
	}
}

func lookTwice(t *testing.T, r rig) {
	c := r.completed(t, someID(), record("reply"))
	here, gone := recordOf(c, 1, record("reply")), store.Found{ID: store.ID{Scope: "tenant-1", Key: "none"}}
	want := []store.Found{here, gone, here, here, gone}
	for i, found := range r.look(t, r.store, here.ID, gone.ID, here.ID, here.ID, gone.ID) {
		same(t, fmt.Sprintf("Look at %d", i), found, want[i])
	}
}

func lookNone(t *testing.T, r rig) {
	r.completed(t, someID(), record("reply"))
	r.look(t, r.store) // which finds as many as it is asked for
}

func lookMost(t *testing.T, r rig) {
	c := r.completed(t, someID(), record("reply"))
	ids := make([]store.ID, store.MaxLook)
	for i := range ids {
		ids[i] = store.ID{Scope: "tenant-1", Key: fmt.Sprint(i)}
	}
	ids[len(ids)-1] = someID()
	found := r.look(t, r.store, ids...)
	same(t, "Look at the first", found[0], store.Found{ID: ids[0]})
	same(t, "Look at the last", found[len(found)-1], recordOf(c, 1, record("reply")))
}

func lookOnly(t *testing.T, r rig) {
	absent(t, "Look", r.row(t, someID()))
	c := longClaim(someID())
	numbered(t, r.win(t, r.store, c), c, 1)
}

func lookCancelled(t *testing.T, r rig) {
	r.within(t, "Look", func(ctx context.Context) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := r.store.Look(ended, []store.ID{someID()}); err == nil {
			t.Error("Look returned no error")
		}
	})
}

package storetest

import (
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func drainTests() []subtest {
	return []subtest{
		{"store can be used on", drainer, drainUse},
		{"attempt that holds its key is not waited for", drainer, drainHeld},
	}
}

func drainUse(t *testing.T, r rig) {
	c := r.completed(t, someID(), record("reply"))
	for range 3 {
		r.lose(t, r.store, longClaim(someID()))
		r.drain(t, r.store)
	}
	same(t, "after Drain", r.row(t, someID()), recordOf(c, 1, record("reply")))
	other := store.ID{Scope: "tenant-1", Key: "other"}
	r.win(t, r.store, longClaim(other)).complete(t, record("other"))
}

func drainHeld(t *testing.T, r rig) {
	c := longClaim(someID())
	h := r.win(t, r.store, c)
	r.lose(t, r.store, longClaim(someID()))
	r.drain(t, r.store)
	h.complete(t, record("reply"))
	same(t, "after Drain", r.row(t, someID()), recordOf(c, 1, record("reply")))
}

package storetest

import (
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func modeTests() []subtest {
	return []subtest{
		{"leased store renews", leasedStore, modeRenews},
		{"stores on shared rows have one mode", twoStores, modeShared},
		{"leased store on a transactional one's rows", transactionalStore | leasedRows, modeLeased},
	}
}

func modeRenews(t *testing.T, r rig) {
	if _, ok := r.store.(store.Renewer); !ok {
		t.Fatalf("%T is leased and not a store.Renewer", r.store)
	}
}

func modeShared(t *testing.T, r rig) {
	if a, b := r.store.Transactional(), r.other.Transactional(); a != b {
		t.Fatalf("Config.Pair returned stores that are transactional: %v and %v", a, b)
	}
}

func modeLeased(t *testing.T, r rig) {
	if r.leased.Transactional() {
		t.Fatal("Config.Leased returned a transactional store")
	}
	rec := record("shared")
	c := r.completed(t, someID(), rec)
	same(t, "the leased store's Look", r.look(t, r.leased, c.ID)[0], recordOf(c, 1, rec))
}

package storetest

import (
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func forgetTests() []subtest {
	return []subtest{
		{"absent key", anyStore, forgetAbsent},
		{"completed key", anyStore, forgetCompleted},
		{"key not kept", anyStore, forgetNotKept},
		{"key in progress", leasedRows, forgetInProgress},
		{"key whose lease is over", leasedRows, forgetOverdue},
		{"expired key", anyStore, forgetExpired},
		{"leaves other keys alone", anyStore, forgetOthers},
	}
}

func forgetAbsent(t *testing.T, r rig) {
	if r.forget(t, someID()) {
		t.Fatal("Forget reported a row where there is none")
	}
	absent(t, "after Forget", r.row(t, someID()))
}

// forgotten fails t unless Forget deletes the row, so that the key's next claim is its first.
func forgotten(t *testing.T, r rig, id store.ID) {
	t.Helper()
	if !r.forget(t, id) {
		t.Fatal("Forget reported no row where there is one")
	}
	absent(t, "after Forget", r.row(t, id))
	if r.forget(t, id) {
		t.Fatal("Forget reported a row that it had deleted")
	}
	c := longClaim(id)
	numbered(t, r.win(t, r.store, c), c, 1)
}

func forgetCompleted(t *testing.T, r rig) {
	r.completed(t, someID(), record("reply"))
	forgotten(t, r, someID())
}

func forgetNotKept(t *testing.T, r rig) {
	r.completed(t, someID(), notKept())
	forgotten(t, r, someID())
}

func forgetInProgress(t *testing.T, r rig) {
	r.win(t, r.leased, longClaim(someID()))
	forgotten(t, r, someID())
}

func forgetOverdue(t *testing.T, r rig) {
	r.overdue(t, someID())
	forgotten(t, r, someID())
}

func forgetExpired(t *testing.T, r rig) {
	r.expired(t, record("reply"), someID())
	forgotten(t, r, someID())
}

func forgetOthers(t *testing.T, r rig) {
	others := []store.ID{{Scope: "tenant-1", Key: "other"}, {Scope: "tenant-2", Key: someID().Key}}
	var want []store.Found
	for _, id := range others {
		want = append(want, recordOf(r.completed(t, id, record("other")), 1, record("other")))
	}
	r.completed(t, someID(), record("reply"))
	r.forget(t, someID())
	for i, found := range r.look(t, r.store, others...) {
		same(t, "another key after Forget", found, want[i])
	}
}

package storetest

import (
	"testing"
)

func releaseTests() []subtest {
	return []subtest{
		{"makes the key absent", anyStore, releaseAbsent},
		{"lets the next call run as attempt 1", anyStore, releaseNext},
		{"of a take-over makes the key absent", leasedRows, releaseTakeOver},
		{"of a take-over of an expired key makes the key absent", anyStore, releaseExpired},
		{"of an attempt whose lease is over makes the key absent", leasedRows, releaseOverdue},
		{"leaves other keys alone", anyStore, releaseOthers},
	}
}

func releaseAbsent(t *testing.T, r rig) {
	r.win(t, r.store, longClaim(someID())).release(t)
	absent(t, "after Release", r.row(t, someID()))
}

func releaseNext(t *testing.T, r rig) {
	for range 3 {
		c := longClaim(someID())
		h := r.win(t, r.store, c)
		numbered(t, h, c, 1)
		h.release(t)
	}
	c := longClaim(someID())
	r.win(t, r.store, c).complete(t, record("reply"))
	same(t, "after a call that ran", r.row(t, someID()), recordOf(c, 1, record("reply")))
}

func releaseTakeOver(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	r.winOver(t, r.store, longClaim(someID()), first.Token).release(t)
	absent(t, "after Release", r.row(t, someID()))
	c := longClaim(someID())
	numbered(t, r.win(t, r.store, c), c, 1)
}

func releaseExpired(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	r.winOver(t, r.store, longClaim(someID()), first.Token).release(t)
	absent(t, "after Release", r.row(t, someID()))
	c := longClaim(someID())
	numbered(t, r.win(t, r.store, c), c, 1)
}

func releaseOverdue(t *testing.T, r rig) {
	h, _ := r.overdue(t, someID())
	h.release(t)
	absent(t, "after Release", r.row(t, someID()))
}

func releaseOthers(t *testing.T, r rig) {
	other := someID()
	other.Key += "-other"
	c := r.completed(t, other, record("other"))
	r.win(t, r.store, longClaim(someID())).release(t)
	same(t, "another key after Release", r.row(t, other), recordOf(c, 1, record("other")))
}

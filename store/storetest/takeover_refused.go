package storetest

import (
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// refusedTests are those in which TakeOver must not win.
func refusedTests() []subtest {
	return []subtest{
		{"absent key is not taken over", anyStore, refusedAbsent},
		{"released key is not taken over", leasedRows, refusedReleased},
		{"live lease is not taken over", leasedRows, refusedLive},
		{"lease that was renewed is not taken over", leasedRows, refusedRenewed},
		{"completed key is not taken over", anyStore, refusedCompleted},
		{"key not kept is not taken over", anyStore, refusedNotKept},
		{"key completed after its lease is not taken over", leasedRows, refusedCompletedLate},
		{"other token than the row's does not take over", leasedRows, refusedToken},
		{"other token than the row's does not take over an expired key", anyStore, refusedTokenExpired},
		{"take-over that came late finds the other", leasedStore, refusedSecond},
		{"take-over that came late finds the other's record", leasedRows, refusedSecondRecord},
	}
}

func refusedAbsent(t *testing.T, r rig) {
	for _, seen := range []store.Token{store.NewToken(), {}} {
		absent(t, "TakeOver", r.loseOver(t, r.store, longClaim(someID()), seen))
		absent(t, "after it", r.row(t, someID()))
	}
}

func refusedReleased(t *testing.T, r rig) {
	h, first := r.overdue(t, someID())
	h.release(t)
	absent(t, "TakeOver", r.loseOver(t, r.store, longClaim(someID()), first.Token))
}

func refusedLive(t *testing.T, r rig) {
	first := longClaim(someID())
	r.win(t, r.leased, first)
	found := r.loseOver(t, r.store, longClaim(someID()), first.Token)
	same(t, "TakeOver", found, claimOf(first, 1))
	leaseWithin(t, found, first.Lease)
	same(t, "after it", r.row(t, someID()), claimOf(first, 1))
}

func refusedRenewed(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	if lost := r.renew(t, longLease, store.Held{ID: someID(), Token: first.Token}); len(lost) > 0 {
		t.Fatal("Renew reported a claim lost that nobody took over")
	}
	found := r.loseOver(t, r.store, longClaim(someID()), first.Token)
	same(t, "TakeOver", found, claimOf(first, 1))
	leaseWithin(t, found, longLease)
}

func refusedCompleted(t *testing.T, r rig) { refusedSettled(t, r, record("reply")) }

func refusedNotKept(t *testing.T, r rig) { refusedSettled(t, r, notKept()) }

func refusedSettled(t *testing.T, r rig, rec store.Record) {
	t.Helper()
	c := r.completed(t, someID(), rec)
	same(t, "TakeOver", r.loseOver(t, r.store, longClaim(someID()), c.Token), recordOf(c, 1, rec))
	same(t, "after it", r.row(t, someID()), recordOf(c, 1, rec))
}

func refusedCompletedLate(t *testing.T, r rig) {
	h, first := r.overdue(t, someID())
	h.complete(t, record("late"))
	found := r.loseOver(t, r.store, longClaim(someID()), first.Token)
	same(t, "TakeOver", found, recordOf(first, 1, record("late")))
}

func refusedToken(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	for _, seen := range []store.Token{store.NewToken(), {}} {
		c := longClaim(someID())
		same(t, "TakeOver", r.loseOver(t, r.store, c, seen), claimOf(first, 1))
		same(t, "TakeOver", r.loseOver(t, r.store, c, c.Token), claimOf(first, 1))
		same(t, "after it", r.row(t, someID()), claimOf(first, 1))
	}
}

func refusedTokenExpired(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	want := expiredOf(recordOf(first, 1, record("old")))
	for _, seen := range []store.Token{store.NewToken(), {}} {
		same(t, "TakeOver", r.loseOver(t, r.store, longClaim(someID()), seen), want)
		same(t, "after it", r.row(t, someID()), want)
	}
}

func refusedSecond(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	second := longClaim(someID())
	r.winOver(t, r.store, second, first.Token)
	found := r.loseOver(t, r.store, longClaim(someID()), first.Token)
	same(t, "TakeOver", found, claimOf(second, 2))
	leaseWithin(t, found, second.Lease)
}

func refusedSecondRecord(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	second := longClaim(someID())
	r.winOver(t, r.store, second, first.Token).complete(t, record("second"))
	found := r.loseOver(t, r.store, longClaim(someID()), first.Token)
	same(t, "TakeOver", found, recordOf(second, 2, record("second")))
}

package storetest

import (
	"context"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func takeOverTests() []subtest {
	return []subtest{
		{"lease that is over", leasedRows, takeOverLease},
		{"expired key right after the Claim that found it", anyStore, takeOverExpiredAtOnce},
		{"lease that is over right after the Claim that found it", leasedRows, takeOverLeaseAtOnce},
		{"claim takes the row's place", leasedStore, takeOverReplaces},
		{"transactional take-over is out of sight", transactionalStore, takeOverOutOfSight},
		{"attempts are counted", leasedRows, takeOverCounts},
		{"expired key begins at attempt 1", anyStore, takeOverExpired},
		{"expired key not kept begins at attempt 1", anyStore, takeOverExpiredNotKept},
		{"expired key in progress begins at attempt 1", leasedRows, takeOverAbandoned},
		{"nothing of an expired record is left", anyStore, takeOverClears},
		{"life is counted anew", anyStore, takeOverLives},
		{"one of many wins an expired key", anyStore, takeOverCrowdExpired},
		{"one of many wins a lease that is over", leasedRows, takeOverCrowdLease},
	}
}

func takeOverLease(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	c := longClaim(someID())
	h := r.winOver(t, r.store, c, first.Token)
	numbered(t, h, c, 2)
	inProgress(t, "Claim after a take-over", r.lose(t, r.store, longClaim(someID())))
	h.complete(t, record("second"))
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(c, 2, record("second")))
}

func takeOverExpiredAtOnce(t *testing.T, r rig) {
	ids := numberedIDs(8)
	r.expired(t, record("old"), ids...)
	for _, id := range ids {
		r.claimAndTakeOver(t, id)
	}
}

func takeOverLeaseAtOnce(t *testing.T, r rig) {
	for _, id := range numberedIDs(8) {
		r.overdue(t, id)
		r.claimAndTakeOver(t, id)
	}
}

// claimAndTakeOver does as the guard does. Nothing that the store does behind the Claim's answer may be in the way.
func (r rig) claimAndTakeOver(t *testing.T, id store.ID) {
	t.Helper()
	found, h := r.claim(t, r.store, longClaim(id))
	if h != nil || !found.Expired && !found.LeaseOver() {
		t.Fatalf("Claim found %s, want a key to take over", describe(found))
	}
	r.winOver(t, r.store, longClaim(id), found.Token).complete(t, record("new"))
}

func takeOverReplaces(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	c := longClaim(someID())
	r.winOver(t, r.store, c, first.Token)
	found := r.row(t, someID())
	same(t, "after the take-over", found, claimOf(c, 2))
	leaseWithin(t, found, c.Lease)
}

func takeOverOutOfSight(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	c := longClaim(someID())
	h := r.winOver(t, r.store, c, first.Token)
	if found := r.lose(t, r.store, longClaim(someID())); !found.OutOfSight() {
		t.Fatalf("Claim found %s, want a key in progress, out of sight", describe(found))
	}
	if found := r.loseOver(t, r.store, longClaim(someID()), first.Token); !found.OutOfSight() {
		t.Fatalf("TakeOver found %s, want a key in progress, out of sight", describe(found))
	}
	h.complete(t, record("new"))
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(c, 1, record("new")))
}

func takeOverCounts(t *testing.T, r rig) {
	_, last := r.overdue(t, someID())
	for number := 2; number <= 4; number++ {
		c := newClaim(someID(), longLife, shortLease)
		numbered(t, r.winOver(t, r.leased, c, last.Token), c, number)
		r.untilLeaseOver(t, someID())
		last = c
	}
	c := longClaim(someID())
	h := r.winOver(t, r.store, c, last.Token)
	numbered(t, h, c, 5)
	h.complete(t, record("fifth"))
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(c, 5, record("fifth")))
}

func takeOverExpired(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	c := longClaim(someID())
	h := r.winOver(t, r.store, c, first.Token)
	numbered(t, h, c, 1)
	h.complete(t, record("new"))
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(c, 1, record("new")))
}

func takeOverExpiredNotKept(t *testing.T, r rig) {
	first := r.expired(t, notKept(), someID())[0]
	c := longClaim(someID())
	numbered(t, r.winOver(t, r.store, c, first.Token), c, 1)
}

func takeOverAbandoned(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	second := newClaim(someID(), shortLife, shortLease)
	numbered(t, r.winOver(t, r.leased, second, first.Token), second, 2)
	r.untilExpired(t, someID())
	third := longClaim(someID())
	numbered(t, r.winOver(t, r.store, third, second.Token), third, 1)
}

func takeOverClears(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	c := longClaim(someID())
	h := r.winOver(t, r.store, c, first.Token)
	if !r.store.Transactional() {
		same(t, "after the take-over", r.row(t, someID()), claimOf(c, 1))
	}
	h.complete(t, notKept())
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(c, 1, notKept()))
}

func takeOverLives(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	c := longClaim(someID())
	r.winOver(t, r.store, c, first.Token).complete(t, record("new"))
	r.pass(t, shortLife)
	same(t, "after the old row's life", r.row(t, someID()), recordOf(c, 1, record("new")))
}

func takeOverCrowdExpired(t *testing.T, r rig) {
	takeOverCrowd(t, r, r.expired(t, record("old"), someID())[0].Token, 1)
}

func takeOverCrowdLease(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	takeOverCrowd(t, r, first.Token, 2)
}

func takeOverCrowd(t *testing.T, r rig, seen store.Token, number int) {
	t.Helper()
	results := atOnce(t, r, "many TakeOvers at once", crowd, func(ctx context.Context, _ int) claimed {
		found, attempt, err := r.store.TakeOver(ctx, longClaim(someID()), seen)
		return claimed{found, attempt, err}
	})
	winner, losers := r.onlyWinner(t, r.store, "TakeOver", results)
	for _, found := range losers {
		inProgress(t, "a TakeOver that lost", found)
	}
	winner.complete(t, record("winner"))
	if found := r.row(t, someID()); found.Token != winner.found.Token || found.Attempt != number {
		t.Fatalf("the row is %s, want the winner's, with token %x, attempt %d", describe(found), winner.found.Token, number)
	}
}

package storetest

import (
	"context"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// sharedTests are on two stores with the same rows, as two processes have them.
func sharedTests() []subtest {
	return []subtest{
		{"claim of one is in progress for the other", twoStores, sharedClaim},
		{"record of one is found by the other", twoStores, sharedRecord},
		{"key that one released is absent for the other", twoStores, sharedRelease},
		{"key that one forgot is absent for the other", twoStores, sharedForget},
		{"one takes over what the other left to expire", twoStores, sharedExpired},
		{"one is fenced by the other", twoStores | leasedRows, sharedFence},
		{"one of many wins across both", twoStores, sharedCrowd},
		{"sweeps of both delete each row once", twoStores, sharedSweep},
	}
}

func sharedClaim(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	inProgress(t, "the other's Claim", r.lose(t, r.other, longClaim(someID())))
	h.complete(t, record("reply"))
}

func sharedRecord(t *testing.T, r rig) {
	c := r.completed(t, someID(), record("reply"))
	want := recordOf(c, 1, record("reply"))
	same(t, "the other's Claim", r.lose(t, r.other, longClaim(someID())), want)
	same(t, "the other's Look", r.look(t, r.other, someID())[0], want)
}

func sharedRelease(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	r.lose(t, r.other, longClaim(someID()))
	h.release(t)
	c := longClaim(someID())
	numbered(t, r.win(t, r.other, c), c, 1)
}

func sharedForget(t *testing.T, r rig) {
	r.completed(t, someID(), record("reply"))
	r.lose(t, r.other, longClaim(someID()))
	r.forget(t, someID())
	c := longClaim(someID())
	numbered(t, r.win(t, r.other, c), c, 1)
}

func sharedExpired(t *testing.T, r rig) {
	first := r.expired(t, record("old"), someID())[0]
	c := longClaim(someID())
	h := r.winOver(t, r.other, c, first.Token)
	numbered(t, h, c, 1)
	inProgress(t, "the first's TakeOver", r.loseOver(t, r.store, longClaim(someID()), first.Token))
	h.complete(t, record("new"))
	same(t, "the first's Look", r.row(t, someID()), recordOf(c, 1, record("new")))
}

func sharedFence(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	c := longClaim(someID())
	r.winOver(t, r.other, c, first.Token).complete(t, record("second"))
	late.completeFenced(t, record("late"))
	same(t, "after a late Complete", r.row(t, someID()), recordOf(c, 2, record("second")))
}

func sharedCrowd(t *testing.T, r rig) {
	stores := []store.Store{r.store, r.other}
	results := atOnce(t, r, "many Claims at once", crowd, func(ctx context.Context, i int) claimed {
		found, attempt, err := stores[i%2].Claim(ctx, longClaim(someID()))
		return claimed{found, attempt, err}
	})
	winner, losers := r.onlyWinner(t, r.store, "Claim", results)
	for _, found := range losers {
		inProgress(t, "a Claim that lost", found)
	}
	winner.complete(t, record("winner"))
	for _, found := range []store.Found{r.look(t, r.store, someID())[0], r.look(t, r.other, someID())[0]} {
		if found.Token != winner.found.Token {
			t.Errorf("the row is %s, want the winner's, with token %x", describe(found), winner.found.Token)
		}
	}
}

func sharedSweep(t *testing.T, r rig) {
	sweepTogether(t, r, r.store, r.other, r.store, r.other)
}

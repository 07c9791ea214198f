package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// lateTests are on attempts that return to a key which they may hold no more.
func lateTests() []subtest {
	return []subtest{
		{"attempt whose lease is over completes if nobody took over", leasedRows, lateAlone},
		{"expired attempt completes if nobody took over", leasedRows, lateExpiredAlone},
		{"cannot complete under another attempt", leasedStore, lateCompleteUnder},
		{"cannot complete over another's record", leasedRows, lateCompleteOver},
		{"cannot complete a key that another released", leasedRows, lateCompleteReleased},
		{"cannot complete a forgotten key", leasedRows, lateCompleteForgotten},
		{"cannot complete a key forgotten and claimed again", leasedStore, lateCompleteReclaimed},
		{"cannot complete a swept key", leasedRows, lateCompleteSwept},
		{"release leaves another attempt alone", leasedStore, lateReleaseUnder},
		{"release leaves another's record alone", leasedRows, lateReleaseOver},
		{"release leaves a key forgotten and claimed again alone", leasedStore, lateReleaseReclaimed},
		{"cannot release a key that another released", leasedRows, lateReleaseReleased},
		{"cannot release a forgotten key", leasedRows, lateReleaseForgotten},
		{"cannot release a swept key", leasedRows, lateReleaseSwept},
		{"cannot release a key twice", leasedRows, lateReleaseTwice},
		{"completes beside a transactional take-over, and one wins", transactionalStore | leasedRows, lateBeside},
	}
}

func lateAlone(t *testing.T, r rig) {
	h, c := r.overdue(t, someID())
	h.complete(t, record("late"))
	same(t, "after a late Complete", r.row(t, someID()), recordOf(c, 1, record("late")))
}

func lateExpiredAlone(t *testing.T, r rig) {
	h, c := r.abandoned(t, someID())
	h.complete(t, record("late"))
	found := r.row(t, someID())
	found.Expired = false // it may have, again, by now
	same(t, "after a late Complete", found, recordOf(c, 1, record("late")))
}

func lateCompleteUnder(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	second := longClaim(someID())
	h := r.winOver(t, r.store, second, first.Token)
	late.completeFenced(t, record("late"))
	same(t, "after a late Complete", r.row(t, someID()), claimOf(second, 2))
	h.complete(t, record("second"))
	same(t, "after the take-over completed", r.row(t, someID()), recordOf(second, 2, record("second")))
}

func lateCompleteOver(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	second := longClaim(someID())
	r.winOver(t, r.store, second, first.Token).complete(t, record("second"))
	late.completeFenced(t, record("late"))
	same(t, "after a late Complete", r.row(t, someID()), recordOf(second, 2, record("second")))
}

func lateCompleteReleased(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	r.winOver(t, r.store, longClaim(someID()), first.Token).release(t)
	late.completeFenced(t, record("late"))
	absent(t, "after a late Complete", r.row(t, someID()))
}

func lateCompleteForgotten(t *testing.T, r rig) {
	late := r.win(t, r.leased, longClaim(someID()))
	r.forget(t, someID())
	late.completeFenced(t, record("late"))
	absent(t, "after a late Complete", r.row(t, someID()))
}

func lateCompleteReclaimed(t *testing.T, r rig) {
	late := r.win(t, r.leased, longClaim(someID()))
	r.forget(t, someID())
	second := longClaim(someID())
	h := r.win(t, r.store, second)
	late.completeFenced(t, record("late"))
	same(t, "after a late Complete", r.row(t, someID()), claimOf(second, 1))
	h.complete(t, record("second"))
	same(t, "after the second completed", r.row(t, someID()), recordOf(second, 1, record("second")))
}

func lateCompleteSwept(t *testing.T, r rig) {
	late, _ := r.abandoned(t, someID())
	if _, deleted := r.sweep(t, store.Cursor{}, 10); deleted != 1 {
		t.Fatalf("Sweep deleted %d rows, want the expired one", deleted)
	}
	late.completeFenced(t, record("late"))
	absent(t, "after a late Complete", r.row(t, someID()))
}

func lateReleaseUnder(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	second := longClaim(someID())
	r.winOver(t, r.store, second, first.Token)
	late.releaseFenced(t)
	same(t, "after a late Release", r.row(t, someID()), claimOf(second, 2))
}

func lateReleaseOver(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	second := longClaim(someID())
	r.winOver(t, r.store, second, first.Token).complete(t, record("second"))
	late.releaseFenced(t)
	same(t, "after a late Release", r.row(t, someID()), recordOf(second, 2, record("second")))
}

func lateReleaseReclaimed(t *testing.T, r rig) {
	late := r.win(t, r.leased, longClaim(someID()))
	r.forget(t, someID())
	second := longClaim(someID())
	r.win(t, r.store, second)
	late.releaseFenced(t)
	same(t, "after a late Release", r.row(t, someID()), claimOf(second, 1))
}

func lateReleaseReleased(t *testing.T, r rig) {
	late, first := r.overdue(t, someID())
	r.winOver(t, r.store, longClaim(someID()), first.Token).release(t)
	late.releaseFenced(t)
	absent(t, "after a late Release", r.row(t, someID()))
}

func lateReleaseForgotten(t *testing.T, r rig) {
	late := r.win(t, r.leased, longClaim(someID()))
	r.forget(t, someID())
	late.releaseFenced(t)
	absent(t, "after a late Release", r.row(t, someID()))
}

func lateReleaseSwept(t *testing.T, r rig) {
	late, _ := r.abandoned(t, someID())
	if _, deleted := r.sweep(t, store.Cursor{}, 10); deleted != 1 {
		t.Fatalf("Sweep deleted %d rows, want the expired one", deleted)
	}
	late.releaseFenced(t)
	absent(t, "after a late Release", r.row(t, someID()))
}

// lateReleaseTwice is what comes of a Release whose acknowledgement was lost, and which is called again.
func lateReleaseTwice(t *testing.T, r rig) {
	h := r.win(t, r.leased, longClaim(someID()))
	h.release(t)
	h.releaseFenced(t)
	second := longClaim(someID())
	r.win(t, r.leased, second)
	h.releaseFenced(t)
	same(t, "after another attempt's claim", r.row(t, someID()), claimOf(second, 1))
}

// lateBeside has the late attempt and the transaction that took over complete at once. The contract leaves it open
// which of them holds the key by then, but not that it is one, or that the row is that one's.
func lateBeside(t *testing.T, r rig) {
	for round, id := range numberedIDs(8) {
		late, first := r.overdue(t, id)
		second := longClaim(id)
		taker := r.winOver(t, r.store, second, first.Token)
		lateErr, takerErr := r.completeBoth(t, late, taker, round%2 == 0)
		want, lost := recordOf(second, 2, record("second")), lateErr
		if lateErr == nil {
			want, lost = recordOf(first, 1, record("late")), takerErr
		}
		if (lateErr == nil) == (takerErr == nil) || !errors.Is(lost, store.ErrFenced) {
			t.Fatalf("Complete returned %v for the late attempt and %v for the one that took over, "+
				"want nil for one and store.ErrFenced for the other", lateErr, takerErr)
		}
		same(t, "after both", r.row(t, id), want)
	}
}

// completeBoth completes both at once, late with record("late"), taker with record("second").
func (r rig) completeBoth(t *testing.T, late, taker *held, lateFirst bool) (lateErr, takerErr error) {
	t.Helper()
	atOnce(t, r, "two Completes at once", 2, func(ctx context.Context, i int) struct{} {
		if (i == 0) == lateFirst {
			lateErr = late.attempt.Complete(ctx, record("late"), false)
		} else {
			takerErr = taker.attempt.Complete(ctx, record("second"), false)
		}
		return struct{}{}
	})
	late.settled, taker.settled = true, true
	return lateErr, takerErr
}

package storetest

import (
	"context"
	"strings"
	"testing"
)

// crowd is how many callers come at once where one of them must win.
const crowd = 64

func claimTests() []subtest {
	return []subtest{
		{"absent key is won as attempt 1", anyStore, claimWins},
		{"key in progress is found with what holds it", leasedRows, claimInProgress},
		{"transactional key in progress is out of sight", transactionalStore, claimOutOfSight},
		{"leased claim of a transactional key in progress", transactionalStore | leasedRows, claimLeasedOutOfSight},
		{"key in progress is not waited for", anyStore, claimDoesNotWait},
		{"losing changes nothing", leasedRows, claimLoses},
		{"completed key is found with its record", anyStore, claimCompleted},
		{"key not kept is found", anyStore, claimNotKept},
		{"key whose lease is over is not won", leasedRows, claimLeaseOver},
		{"expired key is not won", anyStore, claimExpired},
		{"expired key in progress is not won", leasedRows, claimAbandoned},
		{"one of many wins", anyStore, claimCrowd},
		{"longest request hash is kept as it is", anyStore, claimLongHash},
		{"context that has ended is an error", anyStore, claimCancelled},
	}
}

func claimWins(t *testing.T, r rig) {
	c := longClaim(someID())
	numbered(t, r.win(t, r.store, c), c, 1)
}

func claimInProgress(t *testing.T, r rig) {
	first := longClaim(someID())
	r.win(t, r.leased, first)
	found := r.lose(t, r.store, longClaim(someID()))
	same(t, "Claim", found, claimOf(first, 1))
	leaseWithin(t, found, first.Lease)
}

func claimOutOfSight(t *testing.T, r rig) {
	r.win(t, r.store, longClaim(someID()))
	found := r.lose(t, r.store, longClaim(someID()))
	if !found.OutOfSight() || found.RequestHash != "" || found.LeaseLeft != 0 || found.Expired {
		t.Fatalf("Claim found %s, want a key in progress, out of sight, and nothing else", describe(found))
	}
}

func claimLeasedOutOfSight(t *testing.T, r rig) {
	r.win(t, r.store, longClaim(someID()))
	if found := r.lose(t, r.leased, longClaim(someID())); !found.OutOfSight() {
		t.Fatalf("Claim found %s, want a key in progress, out of sight", describe(found))
	}
}

func claimDoesNotWait(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	for range 3 { // each within the bound on one call, while h holds the key
		inProgress(t, "Claim", r.lose(t, r.store, longClaim(someID())))
	}
	h.complete(t, record("reply"))
}

func claimLoses(t *testing.T, r rig) {
	first := longClaim(someID())
	h := r.win(t, r.leased, first)
	r.lose(t, r.store, longClaim(someID()))
	same(t, "after a Claim that lost", r.row(t, someID()), claimOf(first, 1))
	h.complete(t, record("reply"))
	r.lose(t, r.store, longClaim(someID()))
	same(t, "after a Claim that lost", r.row(t, someID()), recordOf(first, 1, record("reply")))
}

func claimCompleted(t *testing.T, r rig) {
	rec := record("reply")
	first := r.completed(t, someID(), rec)
	same(t, "Claim", r.lose(t, r.store, longClaim(someID())), recordOf(first, 1, rec))
}

func claimNotKept(t *testing.T, r rig) {
	first := r.completed(t, someID(), notKept())
	same(t, "Claim", r.lose(t, r.store, longClaim(someID())), recordOf(first, 1, notKept()))
}

func claimLeaseOver(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	for range 2 {
		found := r.lose(t, r.store, longClaim(someID()))
		same(t, "Claim", found, claimOf(first, 1))
		if !found.LeaseOver() {
			t.Fatalf("Claim found %s, want its lease over", describe(found))
		}
	}
}

func claimExpired(t *testing.T, r rig) {
	rec := record("reply")
	first := r.expired(t, rec, someID())[0]
	for range 2 {
		same(t, "Claim", r.lose(t, r.store, longClaim(someID())), expiredOf(recordOf(first, 1, rec)))
	}
}

func claimAbandoned(t *testing.T, r rig) {
	_, first := r.abandoned(t, someID())
	same(t, "Claim", r.lose(t, r.store, longClaim(someID())), expiredOf(claimOf(first, 1)))
}

func claimCrowd(t *testing.T, r rig) {
	results := atOnce(t, r, "many Claims at once", crowd, func(ctx context.Context, _ int) claimed {
		found, attempt, err := r.store.Claim(ctx, longClaim(someID()))
		return claimed{found, attempt, err}
	})
	winner, losers := r.onlyWinner(t, r.store, "Claim", results)
	for _, found := range losers {
		inProgress(t, "a Claim that lost", found)
	}
	winner.complete(t, record("winner"))
	if found := r.row(t, someID()); found.Token != winner.found.Token {
		t.Fatalf("the row is %s, want the winner's, with token %x", describe(found), winner.found.Token)
	}
}

func claimLongHash(t *testing.T, r rig) {
	var visible strings.Builder
	for b := byte('!'); b <= '~'; b++ {
		visible.WriteByte(b)
	}
	c := longClaim(someID())
	c.RequestHash = strings.Repeat(visible.String(), 3)[:255]
	r.win(t, r.store, c).complete(t, record("reply"))
	same(t, "Claim", r.lose(t, r.store, longClaim(someID())), recordOf(c, 1, record("reply")))
}

func claimCancelled(t *testing.T, r rig) {
	r.within(t, "Claim", func(ctx context.Context) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, attempt, err := r.store.Claim(ended, longClaim(someID()))
		if err == nil || attempt != nil {
			t.Errorf("Claim returned attempt %v and error %v, want an error alone", attempt, err)
		}
	})
}

package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func renewTests() []subtest {
	return []subtest{
		{"lease lasts from now", leasedStore, renewExtends},
		{"lease may become shorter", leasedStore, renewShortens},
		{"lease that is over is renewed if nobody took over", leasedStore, renewOverdue},
		{"claim whose life is over lives while it is renewed", leasedRows, renewBeyondLife},
		{"several claims at once", leasedStore, renewSeveral},
		{"claim that was taken over is lost", leasedStore, renewTakenOver},
		{"claim that was settled is lost", leasedStore, renewSettled},
		{"claim that was forgotten is lost", leasedStore, renewForgotten},
		{"other token than the row's is lost", leasedStore, renewToken},
		{"no claims", leasedStore, renewNone},
		{"as many claims as are allowed", leasedStore, renewMost},
		{"does not wait for a transactional take-over", transactionalStore | leasedRows, renewBesideTakeOver},
	}
}

func heldBy(c store.Claim) store.Held { return store.Held{ID: c.ID, Token: c.Token} }

// renews fails t unless Renew finds that all of claims hold their keys.
func (r rig) renews(t *testing.T, lease time.Duration, claims ...store.Held) {
	t.Helper()
	if lost := r.renew(t, lease, claims...); len(lost) > 0 {
		t.Fatalf("Renew reported %x lost, which nobody took over", lost)
	}
}

// losesClaim fails t unless Renew finds that h holds nothing, and leaves the row alone.
func (r rig) losesClaim(t *testing.T, h store.Held) {
	t.Helper()
	before := r.row(t, h.ID)
	if lost := r.renew(t, 2*longLease, h); !slices.Equal(lost, []store.Token{h.Token}) {
		t.Fatalf("Renew reported %x lost, want %x", lost, h.Token)
	}
	after := r.row(t, h.ID)
	same(t, "after Renew of a claim that is lost", after, before)
	if after.LeaseLeft > before.LeaseLeft {
		t.Fatalf("Renew of a claim that is lost moved the lease from %v to %v", before.LeaseLeft, after.LeaseLeft)
	}
}

// renewedBeyondLife returns a claim under a live lease whose life is over.
func (r rig) renewedBeyondLife(t *testing.T, id store.ID) (*held, store.Claim) {
	t.Helper()
	c := newClaim(id, shortLife, shortLease)
	h := r.win(t, r.leased, c)
	r.renews(t, longLease, heldBy(c))
	r.pass(t, shortLife)
	return h, c
}

func renewExtends(t *testing.T, r rig) {
	c := longClaim(someID())
	r.win(t, r.store, c)
	r.renews(t, 2*c.Lease, heldBy(c))
	found := r.row(t, someID())
	same(t, "after Renew", found, claimOf(c, 1))
	leaseWithin(t, found, 2*c.Lease)
	if found.LeaseLeft <= c.Lease {
		t.Fatalf("after Renew for %v, %v are left of the lease", 2*c.Lease, found.LeaseLeft)
	}
}

func renewShortens(t *testing.T, r rig) {
	c := longClaim(someID())
	r.win(t, r.store, c)
	r.renews(t, shortLease, heldBy(c))
	r.untilLeaseOver(t, someID())
}

func renewOverdue(t *testing.T, r rig) {
	_, c := r.overdue(t, someID())
	r.renews(t, longLease, heldBy(c))
	found := r.row(t, someID())
	same(t, "after Renew", found, claimOf(c, 1))
	leaseWithin(t, found, longLease)
}

func renewBeyondLife(t *testing.T, r rig) {
	h, c := r.renewedBeyondLife(t, someID())
	same(t, "Look", r.row(t, someID()), claimOf(c, 1))
	same(t, "Claim", r.lose(t, r.store, longClaim(someID())), claimOf(c, 1))
	same(t, "TakeOver", r.loseOver(t, r.store, longClaim(someID()), c.Token), claimOf(c, 1))
	h.complete(t, record("reply"))
}

func renewSeveral(t *testing.T, r rig) {
	var claims []store.Held
	var lost []store.Token
	for i, id := range numberedIDs(6) {
		c := longClaim(id)
		h := r.win(t, r.store, c)
		if claims = append(claims, heldBy(c)); i%2 == 1 {
			h.release(t)
			lost = append(lost, c.Token)
		}
	}
	got := r.renew(t, 2*longLease, claims...)
	byBytes := func(a, b store.Token) int { return slices.Compare(a[:], b[:]) }
	slices.SortFunc(got, byBytes)
	slices.SortFunc(lost, byBytes)
	if !slices.Equal(got, lost) {
		t.Fatalf("Renew reported %x lost, want %x", got, lost)
	}
	for i, h := range claims {
		if found := r.row(t, h.ID); i%2 == 0 && found.LeaseLeft <= longLease {
			t.Errorf("claim %d was not renewed: %s", i, describe(found))
		} else if i%2 == 1 {
			absent(t, "a released claim after Renew", found)
		}
	}
}

func renewTakenOver(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	r.winOver(t, r.store, longClaim(someID()), first.Token)
	r.losesClaim(t, heldBy(first))
}

func renewSettled(t *testing.T, r rig) {
	for _, rec := range []store.Record{record("reply"), notKept()} {
		c := r.completed(t, store.ID{Scope: "tenant-1", Key: rec.State.String()}, rec)
		r.losesClaim(t, heldBy(c))
	}
	c := longClaim(someID())
	r.win(t, r.store, c).release(t)
	r.losesClaim(t, heldBy(c))
}

func renewForgotten(t *testing.T, r rig) {
	c := longClaim(someID())
	r.win(t, r.store, c)
	r.forget(t, someID())
	r.losesClaim(t, heldBy(c))
	r.win(t, r.store, longClaim(someID()))
	r.losesClaim(t, heldBy(c))
}

func renewToken(t *testing.T, r rig) {
	c := longClaim(someID())
	r.win(t, r.store, c)
	r.losesClaim(t, store.Held{ID: someID(), Token: store.NewToken()})
	r.losesClaim(t, store.Held{ID: store.ID{Scope: "tenant-2", Key: someID().Key}, Token: c.Token})
}

func renewNone(t *testing.T, r rig) { r.renews(t, longLease) }

func renewMost(t *testing.T, r rig) {
	claims := make([]store.Held, store.MaxLook)
	for i := range claims {
		claims[i] = store.Held{ID: store.ID{Scope: "tenant-1", Key: fmt.Sprint(i)}, Token: store.NewToken()}
	}
	c := longClaim(someID())
	r.win(t, r.store, c)
	claims[len(claims)-1] = heldBy(c)
	if lost := r.renew(t, 2*longLease, claims...); len(lost) != len(claims)-1 || slices.Contains(lost, c.Token) {
		t.Fatalf("Renew of %d claims reported %d lost, want all but the last", len(claims), len(lost))
	}
}

// renewBesideTakeOver: a row that is locked keeps its lease, a row that is not gets one; lost it is not before the
// transaction ends.
func renewBesideTakeOver(t *testing.T, r rig) {
	_, first := r.overdue(t, someID())
	h := r.winOver(t, r.store, longClaim(someID()), first.Token)
	r.renews(t, longLease, heldBy(first))
	h.complete(t, record("second"))
	if lost := r.renew(t, longLease, heldBy(first)); !slices.Equal(lost, []store.Token{first.Token}) {
		t.Fatalf("after the take-over completed, Renew reported %x lost, want %x", lost, first.Token)
	}
}

package storetest

import (
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func completeTests() []subtest {
	return []subtest{
		{"record lives as long as the claim said", anyStore, completeLives},
		{"life is counted from the claim", anyStore, completeCounts},
		{"record that has less than a lease to live gets a lease", anyStore, completeNearEnd},
		{"record whose life is over gets a lease", anyStore, completeAfterEnd},
	}
}

// slack is for a clock that is set, or set straight, meanwhile.
func slack(d time.Duration) time.Duration { return d / 10 }

func completeLives(t *testing.T, r rig) {
	const life = 200 * time.Millisecond
	began := time.Now()
	r.win(t, r.store, newClaim(someID(), life, shortLease)).complete(t, record("reply"))
	r.untilExpired(t, someID())
	if lived := time.Since(began); lived < life-slack(life) {
		t.Fatalf("the record expired after %v, want %v", lived, life)
	}
}

// completeCounts compares with a key that is claimed after the first one's completion. It expires after the first one,
// however slow the machine is, if the first one's life is counted from its claim, and before it elsewhere.
func completeCounts(t *testing.T, r rig) {
	const life, running = 200 * time.Millisecond, 150 * time.Millisecond
	h := r.win(t, r.store, newClaim(someID(), life, shortLease))
	r.pass(t, running)
	h.complete(t, record("reply"))
	later := store.ID{Scope: "tenant-1", Key: "later"}
	r.win(t, r.store, newClaim(later, life-running+slack(running), shortLease)).complete(t, record("later"))
	r.untilExpired(t, later)
	if found := r.row(t, someID()); !found.Expired {
		t.Fatalf("the life of a record is not counted from its claim: it outlived a key that expires later: %s", describe(found))
	}
}

func completeNearEnd(t *testing.T, r rig) {
	const lease = 250 * time.Millisecond
	completeAfter(t, r, lease, 2*lease-slack(lease))
}

func completeAfterEnd(t *testing.T, r rig) {
	const lease = 250 * time.Millisecond
	completeAfter(t, r, lease, 2*lease)
}

// completeAfter completes a key that lives for two leases when ran of them is over.
func completeAfter(t *testing.T, r rig, lease, ran time.Duration) {
	t.Helper()
	h := r.win(t, r.store, newClaim(someID(), 2*lease, lease))
	r.pass(t, ran)
	began := time.Now()
	h.complete(t, record("reply"))
	r.untilExpired(t, someID())
	if lived := time.Since(began); lived < lease-slack(lease) {
		t.Fatalf("the record expired %v after it was completed, want a lease at least, %v", lived, lease)
	}
}

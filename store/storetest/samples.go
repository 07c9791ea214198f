package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

const (
	// Times that do not end while a test runs, and times that have ended when it looks twice. A life is two leases at
	// least.
	longLease  = 10 * time.Minute
	longLife   = time.Hour
	shortLease = 2 * time.Millisecond
	shortLife  = 2 * shortLease
)

func someID() store.ID { return store.ID{Scope: "tenant-1", Key: "order-4711"} }

// newClaim makes a claim of id, with a token, a request hash and a procedure that no other claim has.
func newClaim(id store.ID, life, lease time.Duration) store.Claim {
	token := store.NewToken()
	return store.Claim{
		ID:          id,
		Token:       token,
		RequestHash: "v1:" + hexOf(token),
		Procedure:   "/storetest.v1.Service/" + hexOf(token),
		TTL:         life,
		Lease:       lease,
	}
}

func longClaim(id store.ID) store.Claim { return newClaim(id, longLife, longLease) }

// record makes a reply that differs by label.
func record(label string) store.Record {
	return store.Record{State: store.Completed, Code: code.Code_OK, Reply: randomBytes(label, 100)}
}

func notKept() store.Record {
	return store.Record{State: store.NotKept, Code: code.Code_OK}
}

// randomBytes returns n bytes, the same for the same label.
func randomBytes(label string, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(label))).Read(b) // never fails: see its documentation
	return b
}

// completed claims id and completes it with rec.
func (r rig) completed(t *testing.T, id store.ID, rec store.Record) store.Claim {
	t.Helper()
	c := longClaim(id)
	r.win(t, r.store, c).complete(t, rec)
	return c
}

// expired claims and completes ids with rec, waits until all have expired, and returns the claims.
func (r rig) expired(t *testing.T, rec store.Record, ids ...store.ID) []store.Claim {
	t.Helper()
	claims := make([]store.Claim, len(ids))
	for i, id := range ids {
		claims[i] = newClaim(id, shortLife, shortLease)
		r.win(t, r.store, claims[i]).complete(t, rec)
	}
	for _, id := range ids {
		r.untilExpired(t, id)
	}
	return claims
}

// overdue claims id by the leased store, with a long life, and waits until the lease is over.
func (r rig) overdue(t *testing.T, id store.ID) (*held, store.Claim) {
	t.Helper()
	c := newClaim(id, longLife, shortLease)
	h := r.win(t, r.leased, c)
	r.untilLeaseOver(t, id)
	return h, c
}

// abandoned claims id by the leased store, and waits until the claim has expired.
func (r rig) abandoned(t *testing.T, id store.ID) (*held, store.Claim) {
	t.Helper()
	c := newClaim(id, shortLife, shortLease)
	h := r.win(t, r.leased, c)
	r.untilExpired(t, id)
	return h, c
}

// pass lets d go by on the store's clock, which it reads off a row that lives as long. It leaves no row.
func (r rig) pass(t *testing.T, d time.Duration) {
	t.Helper()
	clock := store.ID{Scope: "storetest-clock", Key: hexOf(store.NewToken())}
	r.win(t, r.store, newClaim(clock, d, d/2)).complete(t, notKept())
	r.untilExpired(t, clock)
	r.forget(t, clock) // so that no sweep counts it
}

func (r rig) untilExpired(t *testing.T, id store.ID) {
	t.Helper()
	r.until(t, id, "expired", func(f store.Found) bool { return f.Expired })
}

func (r rig) untilLeaseOver(t *testing.T, id store.ID) {
	t.Helper()
	r.until(t, id, "with its lease over", store.Found.LeaseOver)
}

// until looks at id until reached returns true. It fails t where the row is gone, or patience is over.
func (r rig) until(t *testing.T, id store.ID, what string, reached func(store.Found) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.patience)
	defer cancel()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		f := r.row(t, id)
		if reached(f) {
			return
		}
		if f.State == store.Absent {
			t.Fatalf("the row is gone, before it was seen %s", what)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("the row was not seen %s within %v: %s", what, r.patience, describe(f))
		}
	}
}

func hexOf(t store.Token) string { return hex.EncodeToString(t[:]) }

package storetest

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// claimOf is what a store finds of a claim in progress that is the number-th attempt. LeaseLeft is not compared.
func claimOf(c store.Claim, number int) store.Found {
	return store.Found{
		ID:          c.ID,
		State:       store.InProgress,
		Token:       c.Token,
		Attempt:     number,
		RequestHash: c.RequestHash,
		Procedure:   c.Procedure,
	}
}

// recordOf is what a store finds where the number-th attempt, c, completed with rec.
func recordOf(c store.Claim, number int, rec store.Record) store.Found {
	f := claimOf(c, number)
	f.State = rec.State
	f.Record = rec
	f.Record.Readable = nil // as the contract has it, in what a store returns
	return f
}

func expiredOf(f store.Found) store.Found {
	f.Expired = true
	return f
}

// same fails t unless got is want in all but LeaseLeft.
func same(t *testing.T, what string, got, want store.Found) {
	t.Helper()
	if !reflect.DeepEqual(withoutLease(got), withoutLease(want)) {
		t.Fatalf("%s\n found %s\n want  %s", what, describe(got), describe(want))
	}
}

func withoutLease(f store.Found) store.Found {
	f.LeaseLeft = 0
	if len(f.Record.Reply) == 0 {
		f.Record.Reply = nil
	}
	return f
}

func absent(t *testing.T, what string, got store.Found) {
	t.Helper()
	if got.State != store.Absent {
		t.Fatalf("%s: the key is not absent but %s", what, describe(got))
	}
}

// inProgress fails t unless got says that the key is held now.
func inProgress(t *testing.T, what string, got store.Found) {
	t.Helper()
	if got.State != store.InProgress || got.Expired || got.LeaseOver() {
		t.Fatalf("%s: was not told of a claim in progress, but found %s", what, describe(got))
	}
}

// leaseWithin fails t unless the lease is live and lasts for most at most.
func leaseWithin(t *testing.T, got store.Found, most time.Duration) {
	t.Helper()
	if got.LeaseLeft <= 0 || got.LeaseLeft > most {
		t.Fatalf("%v are left of the lease, want more than 0 and at most %v", got.LeaseLeft, most)
	}
}

// numbered fails t unless h is the number-th attempt and has the claim's token.
func numbered(t *testing.T, h *held, c store.Claim, number int) {
	t.Helper()
	if h.found.Attempt != number {
		t.Errorf("the attempt has number %d, want %d", h.found.Attempt, number)
	}
	if h.found.Token != c.Token {
		t.Errorf("the attempt has token %x, want the claim's, %x", h.found.Token, c.Token)
	}
}

// describe is f without a long reply in it.
func describe(f store.Found) string {
	if f.State == store.Absent {
		return fmt.Sprintf("{absent %q %q, token %x, attempt %d, hash %q}", f.ID.Scope, f.ID.Key, f.Token, f.Attempt, f.RequestHash)
	}
	sum := sha256.Sum256(f.Record.Reply)
	return fmt.Sprintf("{%v %q %q, token %x, attempt %d, hash %q, procedure %q, expired %v, lease left %v, "+
		"record {%v %v, %d bytes of sum %x, readable %v}}",
		f.State, f.ID.Scope, f.ID.Key, f.Token, f.Attempt, f.RequestHash, f.Procedure, f.Expired, f.LeaseLeft,
		f.Record.State, f.Record.Code, len(f.Record.Reply), sum[:4], f.Record.Readable != nil)
}

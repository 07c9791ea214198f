package storetest

import (
	"context"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func attemptTests() []subtest {
	return []subtest{
		{"context keeps what it was made from", anyStore, attemptContext},
		{"completes after the call's context ended", anyStore, attemptCompletes},
		{"releases after the call's context ended", anyStore, attemptReleases},
	}
}

type contextKey struct{}

func attemptContext(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "kept"))
	defer cancel()
	ctx := h.attempt.Context(parent)
	if got := ctx.Value(contextKey{}); got != "kept" {
		t.Errorf("the attempt's context lost its parent's value, it has %v", got)
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("the attempt's context has ended before its parent: %v", err)
	}
	cancel()
	r.within(t, "the end of the attempt's context", func(context.Context) { <-ctx.Done() })
}

func attemptCompletes(t *testing.T, r rig) {
	h, c := r.winAndHangUp(t)
	h.complete(t, record("reply"))
	same(t, "after Complete", r.row(t, someID()), recordOf(c, 1, record("reply")))
}

func attemptReleases(t *testing.T, r rig) {
	h, _ := r.winAndHangUp(t)
	h.release(t)
	absent(t, "after Release", r.row(t, someID()))
	r.win(t, r.store, longClaim(someID()))
}

// winAndHangUp claims under a context, runs under one made from it, and ends both.
func (r rig) winAndHangUp(t *testing.T) (*held, store.Claim) {
	t.Helper()
	c := longClaim(someID())
	var got claimed
	r.within(t, "Claim", func(ctx context.Context) {
		call, hangUp := context.WithCancel(ctx)
		defer hangUp()
		if got.found, got.attempt, got.err = r.store.Claim(call, c); got.attempt != nil {
			got.attempt.Context(call)
		}
	})
	h := r.hold(t, r.store, "Claim", got)
	if h == nil {
		t.Fatalf("Claim of an absent key did not win, it found %s", describe(got.found))
	}
	return h, c
}

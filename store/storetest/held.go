package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// claimed is what Claim or TakeOver returned.
type claimed struct {
	found   store.Found
	attempt store.Attempt
	err     error
}

// held is an attempt that is released when its subtest ends unless it was settled before.
type held struct {
	rig     rig
	attempt store.Attempt
	found   store.Found // as Claim or TakeOver returned it
	leased  bool
	settled bool
}

// hold returns the attempt in got, nil if the claim did not win. It fails t where the call failed.
func (r rig) hold(t *testing.T, s store.Store, what string, got claimed) *held {
	t.Helper()
	if got.err != nil {
		t.Fatalf("%s: %v", what, got.err)
	}
	if got.attempt == nil {
		return nil
	}
	h := &held{rig: r, attempt: got.attempt, found: got.found, leased: !s.Transactional()}
	t.Cleanup(func() {
		if !h.settled {
			h.rig.atCleanup(t, "Release", func(ctx context.Context) {
				if err := h.attempt.Release(ctx); err != nil && !errors.Is(err, store.ErrFenced) {
					t.Errorf("Release: %v", err)
				}
			})
		}
	})
	return h
}

// tryComplete returns Complete's error.
func (h *held) tryComplete(t *testing.T, rec store.Record, keepWrites bool) error {
	t.Helper()
	var err error
	h.rig.within(t, "Complete", func(ctx context.Context) { err = h.attempt.Complete(ctx, rec, keepWrites) })
	// A leased attempt that failed for another reason than the fence may still be settled.
	h.settled = !h.leased || err == nil || errors.Is(err, store.ErrFenced)
	return err
}

func (h *held) complete(t *testing.T, rec store.Record) {
	t.Helper()
	if err := h.tryComplete(t, rec, false); err != nil {
		t.Fatalf("Complete: %v", err)
	}
}

// completeFenced completes for an attempt that lost its key.
func (h *held) completeFenced(t *testing.T, rec store.Record) {
	t.Helper()
	if err := h.tryComplete(t, rec, false); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("Complete of an attempt that lost its key returned %v, want store.ErrFenced", err)
	}
}

func (h *held) tryRelease(t *testing.T) (err error) {
	t.Helper()
	h.rig.within(t, "Release", func(ctx context.Context) { err = h.attempt.Release(ctx) })
	h.settled = true
	return err
}

func (h *held) release(t *testing.T) {
	t.Helper()
	if err := h.tryRelease(t); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// releaseFenced releases for an attempt that lost its key.
func (h *held) releaseFenced(t *testing.T) {
	t.Helper()
	if err := h.tryRelease(t); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("Release of an attempt that lost its key returned %v, want store.ErrFenced", err)
	}
}

// onlyWinner returns the one attempt among results, and the findings of those that did not win.
func (r rig) onlyWinner(t *testing.T, s store.Store, what string, results []claimed) (*held, []store.Found) {
	t.Helper()
	var winners []*held
	var losers []store.Found
	var failed error
	for _, got := range results {
		if got.err != nil {
			failed = got.err
		} else if h := r.hold(t, s, what, got); h != nil {
			winners = append(winners, h)
		} else {
			losers = append(losers, got.found)
		}
	}
	if failed != nil {
		t.Fatalf("%s: %v", what, failed)
	}
	if len(winners) != 1 {
		t.Fatalf("%d of %d calls of %s won, want one", len(winners), len(results), what)
	}
	return winners[0], losers
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// expiring puts n rows into a store that expire in a minute.
func expiring(t *testing.T, s store.Store, n int) {
	t.Helper()
	for i := range n {
		c := store.Claim{ID: store.ID{Key: fmt.Sprint(t.Name(), i)}, Token: store.NewToken(), RequestHash: "h", TTL: time.Minute, Lease: time.Second}
		if _, a, err := s.Claim(t.Context(), c); err != nil || a == nil {
			t.Fatalf("claim: %v", err)
		}
	}
}

// A sweeper deletes what has expired, in batches, pass after pass, until its context ends.
func TestSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		expiring(t, s, 25)
		var batches []int
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			store.Sweeper{Store: s, Every: 10 * time.Second, Batch: 10, Swept: func(n int, err error) {
				if err != nil {
					t.Error(err)
				}
				batches = append(batches, n)
			}}.Run(ctx)
		}()
		<-time.After(65 * time.Second) // by the clock of the bubble
		synctest.Wait()
		if got := fmt.Sprint(batches); got != "[0 0 0 0 0 0 10 10 5]" {
			t.Errorf("the batches are %s, want six empty passes and one of 10, 10 and 5", got)
		}
		stop()
		<-ended
	})
}

// A pass that fails is tried again by the next one, from where it was.
func TestSweeperGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failingOnce{Store: memory.New()}
		expiring(t, s, 1)
		var failed, deleted int
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		store.Sweeper{Store: s, Swept: func(n int, err error) {
			deleted += n
			if err != nil {
				failed++
			}
		}}.Run(ctx)
		if failed != 1 || deleted != 1 {
			t.Errorf("%d failures and %d rows deleted, want one of each", failed, deleted)
		}
	})
}

type failingOnce struct {
	store.Store
	failed bool
}

func (s *failingOnce) Sweep(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
	if !s.failed {
		s.failed = true
		return from, 0, errors.New("down")
	}
	return s.Store.Sweep(ctx, from, limit)
}

// A cursor goes back to the beginning now and then, for rows that were locked when it went by.
func TestSweeperBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cursors{Store: memory.New()}
		ctx, stop := context.WithTimeout(t.Context(), 125*time.Minute)
		defer stop()
		store.Sweeper{Store: s}.Run(ctx)
		if s.fromStart != 3 {
			t.Errorf("%d passes of %d began at the beginning, want 3", s.fromStart, s.passes)
		}
	})
}

// cursors counts passes, and moves the cursor on each.
type cursors struct {
	store.Store
	passes, fromStart int
}

func (s *cursors) Sweep(_ context.Context, from store.Cursor, _ int) (store.Cursor, int, error) {
	s.passes++
	if from == (store.Cursor{}) {
		s.fromStart++
	}
	from.ID.Key = "on"
	return from, 0, nil
}

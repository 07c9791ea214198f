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

// Batches that take long are made smaller until they do not, and larger again once they are quick.
func TestSweeperFitsItsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memory.New(), perRow: time.Millisecond}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		store.Sweeper{Store: s, Batch: 400}.Run(ctx)
		if got := fmt.Sprint(s.asked[:6]); got != "[400 200 100 50 50 50]" {
			t.Errorf("the first batches are %s, of which the fourth takes no more than it may", got)
		}

		s = &slow{Store: memory.New(), perRow: time.Second}
		ctx, stop = context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		store.Sweeper{Store: s, Batch: 400}.Run(ctx)
		if least := s.asked[len(s.asked)-1]; least != 10 {
			t.Errorf("the smallest batch is of %d rows, want 10", least)
		}
		s.perRow, s.asked = time.Microsecond, nil
		ctx, stop = context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		store.Sweeper{Store: s, Batch: 5}.Run(ctx)
		if s.asked[len(s.asked)-1] != 5 {
			t.Errorf("the batches are %v, and never of more than 5", s.asked)
		}
	})
}

// A sweeper whose batches were made small comes back to its full size.
func TestSweeperGrowsItsBatchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memory.New(), perRow: time.Millisecond, quickAfter: 5}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		store.Sweeper{Store: s, Batch: 400}.Run(ctx)
		if got := fmt.Sprint(s.asked[:10]); got != "[400 200 100 50 50 50 100 200 400 400]" {
			t.Errorf("the first batches are %s", got)
		}
	})
}

// However long its batches take, a sweeper works at most a third of the time; it rests for its pause where that is longer.
func TestSweeperRestsAfterEachBatch(t *testing.T) {
	for name, test := range map[string]struct{ perRow, pause, every time.Duration }{
		"slow batches":  {time.Millisecond, 0, 30 * time.Millisecond},
		"quick batches": {time.Microsecond, 0, 10*time.Millisecond + 10*time.Microsecond},
		"a long pause":  {time.Millisecond, time.Second, time.Second + 10*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{Store: memory.New(), perRow: test.perRow}
				ctx, stop := context.WithTimeout(t.Context(), 10*test.every-1)
				defer stop()
				store.Sweeper{Store: s, Batch: 10, Pause: test.pause}.Run(ctx)
				if len(s.asked) != 10 {
					t.Errorf("%d batches in the time of ten", len(s.asked))
				}
			})
		})
	}
}

// A batch that fails since it takes too long is made smaller as well, or nothing would ever be swept.
func TestSweeperMakesBatchesSmallerThatTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memory.New(), perRow: 10 * time.Millisecond, timeout: time.Second}
		deleted := 0
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		store.Sweeper{Store: s, Batch: 400, Swept: func(n int, _ error) { deleted += n }}.Run(ctx)
		if deleted == 0 {
			t.Errorf("nothing was deleted in %d batches, the last of %d rows", len(s.asked), s.asked[len(s.asked)-1])
		}
	})
}

// slow is a store that has always something to sweep, and takes its time for each row.
type slow struct {
	store.Store
	perRow     time.Duration
	quickAfter int           // batches, if not zero
	timeout    time.Duration // of a batch, if not zero
	asked      []int
}

func (s *slow) Sweep(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
	s.asked = append(s.asked, limit)
	if s.quickAfter > 0 && len(s.asked) > s.quickAfter {
		return from, limit, nil
	}
	takes := time.Duration(limit) * s.perRow
	if s.timeout > 0 && takes > s.timeout {
		<-time.After(s.timeout)
		return from, 0, context.DeadlineExceeded
	}
	select {
	case <-ctx.Done():
	case <-time.After(takes):
	}
	return from, limit, nil
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

package store

import (
	"cmp"
	"context"
	"time"
)

// Sweeper deletes a store's expired rows in the background. Every server may run one. In its numbers zero or less means
// the default.
type Sweeper struct {
	// Store is what is swept. Required.
	Store Store
	// Every is the time between two passes. Default 1 minute.
	Every time.Duration
	// Batch is how many rows one statement deletes at most. Default 1,000; more than [MaxSweep] means MaxSweep.
	Batch int
	// Pause is the time between two batches of a pass, for other work to go through. Default 10 milliseconds.
	Pause time.Duration
	// Swept, if set, is told of each batch: how many rows it deleted, or why it failed. A failed pass is left, and the next
	// one begins where it was.
	Swept func(deleted int, err error)
}

// restartAfter is the number of passes after which one begins at the beginning again, for rows that were locked when the
// cursor went by.
const restartAfter = 60

// Run sweeps, at once and then time after time, until ctx ends.
func (s Sweeper) Run(ctx context.Context) {
	s = s.withDefaults()
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	var cursor Cursor
	for pass := 0; ; pass++ {
		if pass%restartAfter == 0 {
			cursor = Cursor{}
		}
		cursor = s.pass(ctx, cursor)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s Sweeper) withDefaults() Sweeper {
	s.Every = cmp.Or(max(s.Every, 0), time.Minute)
	s.Batch = min(cmp.Or(max(s.Batch, 0), 1000), MaxSweep)
	s.Pause = cmp.Or(max(s.Pause, 0), 10*time.Millisecond)
	if s.Swept == nil {
		s.Swept = func(int, error) {}
	}
	return s
}

// pass sweeps batches until one is not full, and returns where the next pass goes on.
func (s Sweeper) pass(ctx context.Context, cursor Cursor) Cursor {
	for {
		next, deleted, err := s.Store.Sweep(ctx, cursor, s.Batch)
		if ctx.Err() != nil {
			return cursor
		}
		s.Swept(deleted, err)
		if err != nil {
			return cursor
		}
		cursor = next
		if deleted < s.Batch {
			return cursor
		}
		select {
		case <-ctx.Done():
			return cursor
		case <-time.After(s.Pause):
		}
	}
}

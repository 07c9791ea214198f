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
	// Batch is how many rows one statement deletes at most. Default 1,000; more than [MaxSweep] means MaxSweep. Batches that
	// take more than 50 milliseconds are made smaller, down to 10 rows, and larger again once they are quick: a statement
	// that reads many pages from a slow disk holds its rows for as long.
	Batch int
	// Pause is the least time between two batches of a pass, for other work to go through. Default 10 milliseconds. A sweeper
	// rests twice as long as its last batch took, where that is longer: however much there is to sweep, and however busy the
	// database, it works at most a third of the time.
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
	at := sweep{batch: s.Batch}
	for pass := 0; ; pass++ {
		if pass%restartAfter == 0 {
			at.cursor = Cursor{}
		}
		s.pass(ctx, &at)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweep is how far a sweeper has come, and how many rows it asks for at once.
type sweep struct {
	cursor Cursor
	batch  int
}

const (
	// longBatch is what a batch may take before the next one is made smaller; one that takes a quarter of it makes the next
	// one larger.
	longBatch  = 50 * time.Millisecond
	leastBatch = 10
	// rest is how many times as long as its last batch took a sweeper rests at least.
	rest = 2
)

// fit sets the next batch's size by what the last one took.
func (w *sweep) fit(took time.Duration, most int) {
	switch {
	case took > longBatch:
		w.batch = max(w.batch/2, min(leastBatch, most))
	case took < longBatch/4:
		w.batch = min(w.batch*2, most)
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

// pass sweeps batches until one is not full. Where one fails, the next pass goes on from there.
func (s Sweeper) pass(ctx context.Context, at *sweep) {
	for {
		asked, start := at.batch, time.Now()
		next, deleted, err := s.Store.Sweep(ctx, at.cursor, asked)
		if ctx.Err() != nil {
			return
		}
		took := time.Since(start)
		at.fit(took, s.Batch) // one that timed out too
		s.Swept(deleted, err)
		if err != nil {
			return
		}
		at.cursor = next
		if deleted < asked {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(s.Pause, rest*took)):
		}
	}
}

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// sweeping is first calls beside a sweep, round by round.
type sweeping struct {
	Mode         string
	Alone        []float64 // calls per second
	Beside       []float64 // calls per second, while the sweep goes on
	RowsUnpaused []float64 // swept per second beside the calls, one batch right after the other
	Paced        []float64 // calls per second beside a sweep with store.Sweeper's pauses
	RowsPaced    []float64
}

const (
	sweepBatch = 1000                  // store.Sweeper's default
	sweepPause = 10 * time.Millisecond // likewise
)

// measureSweeping compares first calls alone with first calls while as many expired rows as there are to be swept go away.
func measureSweeping(ctx context.Context, at string, rounds, rows, each int, p *progress) ([]sweeping, error) {
	s, err := newStage(ctx, conditions{label: "sweeping", at: at, callers: baseCallers, message: smallMessage, calls: each})
	if err != nil {
		return nil, err
	}
	var all []sweeping
	for _, mode := range []string{"transactional", "leased"} {
		one, err := s.sweepBeside(ctx, mode, rounds, rows, p)
		if err != nil {
			return nil, fmt.Errorf("sweeping: %w", err)
		}
		all = append(all, one)
	}
	return all, s.close(ctx)
}

func (s *stage) sweepBeside(ctx context.Context, mode string, rounds, rows int, p *progress) (one sweeping, err error) {
	one.Mode = mode
	v, err := s.first(ctx, mode)
	if err != nil {
		return one, err
	}
	if _, err := calls(ctx, v, s.callers, warmCalls/s.callers); err != nil {
		return one, err
	}
	for round := range rounds {
		p.say("sweeping: round %d of %d, %s", round+1, rounds, mode)
		if err := s.expire(ctx, rows); err != nil { // so that both find the same table and the same disk
			return one, err
		}
		alone, err := take(ctx, s, v, s.callers, s.calls)
		if err != nil {
			return one, err
		}
		called, swept, err := s.besideOneSweep(ctx, v, mode, rows, 0)
		if err != nil {
			return one, err
		}
		one.Alone = append(one.Alone, alone.PerSecond)
		one.Beside, one.RowsUnpaused = append(one.Beside, called), append(one.RowsUnpaused, swept)
		if err := s.expire(ctx, rows); err != nil {
			return one, err
		}
		if called, swept, err = s.besideOneSweep(ctx, v, mode, rows, sweepPause); err != nil {
			return one, err
		}
		one.Paced, one.RowsPaced = append(one.Paced, called), append(one.RowsPaced, swept)
	}
	return one, nil
}

// expire adds rows that have expired.
func (s *stage) expire(ctx context.Context, rows int) error {
	return onConn(ctx, s.at, func(conn *pgx.Conn) error { return insertRows(ctx, conn, rows, "-1 day") })
}

// besideOneSweep has callers make calls until all rows are swept, and returns both per second.
func (s *stage) besideOneSweep(ctx context.Context, v *variant, mode string, rows int, pause time.Duration) (called, swept float64, err error) {
	var done atomic.Bool
	var n atomic.Int64
	running, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for caller := range s.callers {
		running.Go(func() error {
			for !done.Load() {
				if err := v.call(ctx, caller); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	running.Go(func() error {
		defer done.Store(true)
		return sweepAll(ctx, s.stores[mode], rows, pause)
	})
	err = running.Wait()
	took := time.Since(start).Seconds()
	return float64(n.Load()) / took, float64(rows) / took, err
}

// sweepAll sweeps rows, in batches, and fails where there are fewer.
func sweepAll(ctx context.Context, keys store.Store, rows int, pause time.Duration) error {
	var cursor store.Cursor
	for left := rows; left > 0; {
		next, deleted, err := keys.Sweep(ctx, cursor, sweepBatch)
		if err != nil {
			return err
		}
		if deleted == 0 {
			return fmt.Errorf("%d of %d expired rows are not swept", left, rows)
		}
		cursor, left = next, left-deleted
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}

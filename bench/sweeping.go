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
	Beside       []float64 // calls per second, while a store.Sweeper sweeps as fast as it does
	Rows         []float64 // swept per second beside the calls
	Restless     []float64 // calls per second, while batches are swept one right after the other
	RowsRestless []float64
}

const sweepBatch = 1000 // store.Sweeper's default

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
		called, swept, err := s.besideOneSweep(ctx, v, rows, func(ctx context.Context) error { return sweepAll(ctx, s.stores[mode], rows) })
		if err != nil {
			return one, err
		}
		one.Alone = append(one.Alone, alone.PerSecond)
		one.Beside, one.Rows = append(one.Beside, called), append(one.Rows, swept)
		if err := s.expire(ctx, rows); err != nil {
			return one, err
		}
		called, swept, err = s.besideOneSweep(ctx, v, rows, func(ctx context.Context) error { return restless(ctx, s.stores[mode], rows) })
		if err != nil {
			return one, err
		}
		one.Restless, one.RowsRestless = append(one.Restless, called), append(one.RowsRestless, swept)
	}
	return one, nil
}

// expire adds rows that have expired.
func (s *stage) expire(ctx context.Context, rows int) error {
	return onConn(ctx, s.at, func(conn *pgx.Conn) error { return insertRows(ctx, conn, rows, "-1 day") })
}

// besideOneSweep has callers make calls until all rows are swept, and returns both per second.
func (s *stage) besideOneSweep(ctx context.Context, v *variant, rows int, sweep func(context.Context) error) (called, swept float64, err error) {
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
		return sweep(ctx)
	})
	err = running.Wait()
	took := time.Since(start).Seconds()
	return float64(n.Load()) / took, float64(rows) / took, err
}

// sweepAll has a store.Sweeper sweep rows, which rests no longer than it has to, and fails where there are fewer.
func sweepAll(ctx context.Context, keys store.Store, rows int) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	left := rows
	store.Sweeper{Store: keys, Pause: time.Nanosecond, Every: time.Second, Swept: func(deleted int, failed error) {
		if left, err = left-deleted, failed; err == nil && deleted == 0 && left > 0 {
			err = fmt.Errorf("%d of %d expired rows are not swept", left, rows)
		}
		if left <= 0 || err != nil {
			stop()
		}
	}}.Run(ctx)
	return err
}

// restless sweeps rows in batches, one right after the other, and fails where there are fewer.
func restless(ctx context.Context, keys store.Store, rows int) error {
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
	}
	return nil
}

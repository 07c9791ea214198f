package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// sweepFunc is a Sweep of f's.
type sweepFunc func(ctx context.Context, f *faulty, from store.Cursor, limit int) (store.Cursor, int, error)

func sweeps(name string, sweep sweepFunc, fails ...string) fault {
	return broken(name, func(f *faulty) {
		f.sweep = func(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
			return sweep(ctx, f, from, limit)
		}
	}, fails...)
}

func sweepFaults() []fault {
	return []fault{
		sweeps("Sweep deletes nothing",
			func(_ context.Context, _ *faulty, from store.Cursor, _ int) (store.Cursor, int, error) {
				return from, 0, nil
			},
			"Sweep/nothing to delete",
			"Sweep/deletes expired rows",
			"Sweep/deletes expired claims",
			"Late/cannot complete a swept key",
		),
		sweeps("Sweep deletes every row",
			func(ctx context.Context, f *faulty, from store.Cursor, _ int) (store.Cursor, int, error) {
				n, err := f.forgetAll(ctx, func(store.ID) bool { return true })
				return from, n, err
			},
			"Sweep/leaves records alone that live",
			"Sweep/leaves a live claim alone",
			"Sweep/leaves a claim alone that may be taken over",
			"Sweep/leaves a live claim alone whose life is over",
			"Sweep/leaves an attempt alone that took an expired key",
		),
		sweeps("Sweep deletes what its lease is over",
			func(ctx context.Context, f *faulty, from store.Cursor, _ int) (store.Cursor, int, error) {
				n, err := f.forgetAll(ctx, func(id store.ID) bool { return f.row(ctx, id).LeaseOver() })
				return from, n, err
			}, "Sweep/leaves a claim alone that may be taken over", "Sweep/deletes expired rows"),
		sweeps("Sweep knows no limit",
			func(ctx context.Context, f *faulty, from store.Cursor, _ int) (store.Cursor, int, error) {
				return f.sound.Sweep(ctx, from, store.MaxSweep)
			}, "Sweep/deletes as many as it may, from the beginning", "Sweep/goes on where the last one ended"),
		sweeps("Sweep goes nowhere",
			func(ctx context.Context, f *faulty, from store.Cursor, limit int) (store.Cursor, int, error) {
				if from != (store.Cursor{}) {
					return from, 0, nil
				}
				_, n, err := f.sound.Sweep(ctx, from, limit)
				return store.Cursor{ExpiresAt: time.Now().Add(time.Hour)}, n, err
			},
			"Sweep/nothing to delete",
			"Sweep/goes on where the last one ended",
			"Sweep/goes on to what expires later",
		),
		sweeps("Sweep counts short",
			func(ctx context.Context, f *faulty, from store.Cursor, limit int) (store.Cursor, int, error) {
				from, n, err := f.sound.Sweep(ctx, from, limit)
				return from, max(n-1, 0), err
			}, "Sweep/several at once delete each row once", "Shared/sweeps of both delete each row once"),
		sweeps("Sweep with a large limit fails",
			func(ctx context.Context, f *faulty, from store.Cursor, limit int) (store.Cursor, int, error) {
				if limit >= store.MaxSweep {
					return from, 0, errors.New("limit out of range")
				}
				return f.sound.Sweep(ctx, from, limit)
			}, "Sweep/largest limit"),
	}
}

// renewFunc is a Renew of f's.
type renewFunc func(ctx context.Context, f *faulty, held []store.Held, lease time.Duration) ([]store.Token, error)

func renewFaults() []fault {
	renews := func(name string, renew renewFunc, fails ...string) fault {
		return broken(name, func(f *faulty) {
			f.renew = func(ctx context.Context, held []store.Held, lease time.Duration) ([]store.Token, error) {
				return renew(ctx, f, held, lease)
			}
		}, fails...)
	}
	return []fault{
		renews("Renew does nothing",
			func(context.Context, *faulty, []store.Held, time.Duration) ([]store.Token, error) { return nil, nil },
			"Renew/lease lasts from now",
			"Renew/lease may become shorter",
			"Renew/lease that is over is renewed if nobody took over",
			"Renew/claim that was settled is lost",
			"Renew/as many claims as are allowed",
		),
		renews("Renew refuses a lease that is over",
			func(ctx context.Context, f *faulty, held []store.Held, _ time.Duration) ([]store.Token, error) {
				var lost []store.Token
				for _, h := range held {
					if f.row(ctx, h.ID).LeaseOver() {
						lost = append(lost, h.Token)
					}
				}
				return lost, nil
			}, "Renew/lease that is over is renewed if nobody took over"),
		renews("Renew adds to the lease",
			func(ctx context.Context, f *faulty, held []store.Held, lease time.Duration) ([]store.Token, error) {
				return f.sound.Renew(ctx, held, lease+max(f.row(ctx, held[0].ID).LeaseLeft, 0))
			}, "Renew/lease lasts from now", "Renew/lease may become shorter"),
		renews("Renew fences nothing",
			func(ctx context.Context, f *faulty, held []store.Held, lease time.Duration) ([]store.Token, error) {
				for i, h := range held {
					held[i].Token = f.row(ctx, h.ID).Token
				}
				_, err := f.sound.Renew(ctx, held, lease)
				return nil, err
			},
			"Renew/claim that was taken over is lost",
			"Renew/claim that was forgotten is lost",
			"Renew/other token than the row's is lost",
		),
		renews("Renew renews one",
			func(ctx context.Context, f *faulty, held []store.Held, lease time.Duration) ([]store.Token, error) {
				return f.sound.Renew(ctx, held[:1], lease)
			}, "Renew/several claims at once"),
		renews("Renew of none fails",
			func(ctx context.Context, f *faulty, held []store.Held, lease time.Duration) ([]store.Token, error) {
				if len(held) == 0 {
					return nil, errors.New("syntax error")
				}
				return f.sound.Renew(ctx, held, lease)
			}, "Renew/no claims"),
	}
}

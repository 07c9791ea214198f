package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func settleFaults() []fault {
	fenced := []string{
		"Late/cannot complete under another attempt",
		"Late/cannot complete over another's record",
		"Late/cannot complete a key that another released",
		"Late/cannot complete a forgotten key",
		"Late/cannot complete a key forgotten and claimed again",
		"Late/cannot complete a swept key",
		"Shared/one is fenced by the other",
	}
	return append(lifeFaults(), []fault{
		broken("late Complete overwrites the row", func(f *faulty) {
			f.spoil = func(_ context.Context, c store.Claim, a *faultyAttempt) {
				sound := a.complete
				a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
					err := sound(ctx, r, keepWrites)
					if !errors.Is(err, store.ErrFenced) {
						return err
					}
					_, again, err := f.force(ctx, c)
					if err != nil {
						return err
					}
					return errors.Join(again.Complete(ctx, r, keepWrites), store.ErrFenced)
				}
			}
		}, fenced...),
		broken("late Complete says nothing", func(f *faulty) {
			f.spoil = func(_ context.Context, _ store.Claim, a *faultyAttempt) {
				sound := a.complete
				a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
					if err := sound(ctx, r, keepWrites); !errors.Is(err, store.ErrFenced) {
						return err
					}
					return nil
				}
			}
		}, fenced...),
		broken("Complete refuses once the lease is over", func(f *faulty) {
			f.spoil = func(_ context.Context, c store.Claim, a *faultyAttempt) {
				sound := a.complete
				a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
					if found := f.row(ctx, c.ID); found.Expired || found.LeaseOver() {
						return store.ErrFenced
					}
					return sound(ctx, r, keepWrites)
				}
			}
		}, "Late/attempt whose lease is over completes if nobody took over", "Late/expired attempt completes if nobody took over"),
		broken("Release deletes any row", func(f *faulty) {
			f.spoil = func(_ context.Context, c store.Claim, a *faultyAttempt) {
				a.release = func(ctx context.Context) error {
					_, err := f.sound.Forget(ctx, c.ID)
					return err
				}
			}
		},
			"Late/release leaves another attempt alone",
			"Late/release leaves another's record alone",
			"Late/release leaves a key forgotten and claimed again alone",
			"Late/cannot release a key twice",
		),
		broken("late Release says nothing", func(f *faulty) {
			f.spoil = func(_ context.Context, _ store.Claim, a *faultyAttempt) {
				sound := a.release
				a.release = func(ctx context.Context) error {
					if err := sound(ctx); !errors.Is(err, store.ErrFenced) {
						return err
					}
					return nil
				}
			}
		},
			"Late/release leaves another attempt alone",
			"Late/release leaves another's record alone",
			"Late/release leaves a key forgotten and claimed again alone",
			"Late/cannot release a key that another released",
			"Late/cannot release a forgotten key",
			"Late/cannot release a swept key",
			"Late/cannot release a key twice",
		),
		broken("Release refuses once the lease is over", func(f *faulty) {
			f.spoil = func(_ context.Context, c store.Claim, a *faultyAttempt) {
				sound := a.release
				a.release = func(ctx context.Context) error {
					if found := f.row(ctx, c.ID); found.Expired || found.LeaseOver() {
						return store.ErrFenced
					}
					return sound(ctx)
				}
			}
		}, "Release/of an attempt whose lease is over makes the key absent"),
		broken("Release does nothing", func(f *faulty) {
			f.spoil = func(_ context.Context, _ store.Claim, a *faultyAttempt) {
				a.release = func(context.Context) error { return nil }
			}
		},
			"Release/makes the key absent",
			"Release/lets the next call run as attempt 1",
			"Release/of a take-over makes the key absent",
			"Release/of a take-over of an expired key makes the key absent",
			"Release/of an attempt whose lease is over makes the key absent",
			"Attempt/releases after the call's context ended",
			"Shared/key that one released is absent for the other",
		),
		broken("Release frees every key", func(f *faulty) {
			f.spoil = func(_ context.Context, _ store.Claim, a *faultyAttempt) {
				a.release = func(ctx context.Context) error {
					_, err := f.forgetAll(ctx, func(store.ID) bool { return true })
					return err
				}
			}
		}, "Release/leaves other keys alone"),
		broken("attempt has a context of its own", func(f *faulty) {
			f.spoil = func(_ context.Context, _ store.Claim, a *faultyAttempt) {
				a.context = func(context.Context) context.Context { return context.Background() }
			}
		}, "Attempt/context keeps what it was made from"),
		broken("attempt ends with its call", func(f *faulty) {
			f.spoil = func(call context.Context, _ store.Claim, a *faultyAttempt) {
				complete, release := a.complete, a.release
				a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
					if err := call.Err(); err != nil {
						return fmt.Errorf("the transaction was rolled back: %w", err)
					}
					return complete(ctx, r, keepWrites)
				}
				a.release = func(ctx context.Context) error {
					if err := call.Err(); err != nil {
						return fmt.Errorf("the transaction was rolled back: %w", err)
					}
					return release(ctx)
				}
			}
		}, "Attempt/completes after the call's context ended", "Attempt/releases after the call's context ended"),
	}...)
}

// ends remembers when keys end.
type ends struct {
	mu sync.Mutex
	at map[store.ID]time.Time
}

func (e *ends) set(id store.ID, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[id] = at
}

func (e *ends) over(id store.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !time.Now().Before(e.at[id])
}

func lifeFaults() []fault {
	return []fault{
		broken("life is short", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				c.TTL, c.Lease = shortLife, shortLease
				return f.sound.Claim(ctx, c)
			}
		}, "Complete/record lives as long as the claim said"),
		broken("life is counted from completion", func(f *faulty) {
			e := &ends{at: map[store.ID]time.Time{}}
			f.spoil = func(_ context.Context, c store.Claim, a *faultyAttempt) {
				sound := a.complete
				a.complete = func(ctx context.Context, r store.Record, keepWrites bool) error {
					e.set(c.ID, time.Now().Add(c.TTL))
					return sound(ctx, r, keepWrites)
				}
			}
			f.show = func(found store.Found) store.Found {
				found.Expired = found.Expired && e.over(found.ID)
				return found
			}
		}, "Complete/life is counted from the claim"),
		broken("life is never extended", func(f *faulty) {
			e := &ends{at: map[store.ID]time.Time{}}
			f.spoil = func(_ context.Context, c store.Claim, _ *faultyAttempt) { e.set(c.ID, time.Now().Add(c.TTL)) }
			f.show = func(found store.Found) store.Found {
				found.Expired = found.State != store.Absent && e.over(found.ID)
				return found
			}
		},
			"Complete/record that has less than a lease to live gets a lease",
			"Complete/record whose life is over gets a lease",
			"Renew/claim whose life is over lives while it is renewed",
		),
	}
}

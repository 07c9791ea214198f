package storetest

import (
	"context"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func takeOverFaults() []fault {
	return []fault{
		broken("take-over always wins", func(f *faulty) {
			f.takeOver = func(ctx context.Context, c store.Claim, _ store.Token) (store.Found, store.Attempt, error) {
				return f.force(ctx, c)
			}
		},
			"TakeOver/absent key is not taken over",
			"TakeOver/released key is not taken over",
			"TakeOver/live lease is not taken over",
			"TakeOver/lease that was renewed is not taken over",
			"TakeOver/completed key is not taken over",
			"TakeOver/key not kept is not taken over",
			"TakeOver/key completed after its lease is not taken over",
			"TakeOver/take-over that came late finds the other",
			"TakeOver/take-over that came late finds the other's record",
			"TakeOver/one of many wins an expired key",
			"TakeOver/one of many wins a lease that is over",
		),
		broken("take-over never wins", func(f *faulty) {
			f.takeOver = func(ctx context.Context, c store.Claim, _ store.Token) (store.Found, store.Attempt, error) {
				return f.row(ctx, c.ID), nil, nil
			}
		}, "TakeOver/lease that is over", "TakeOver/expired key begins at attempt 1", "Sweep/leaves a claim alone that may be taken over"),
		broken("claim that lost is in the way for a while", func(f *faulty) {
			lost := map[store.ID]bool{}
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				found, a, err := f.sound.Claim(ctx, c)
				f.mu.Lock()
				defer f.mu.Unlock()
				lost[c.ID] = a == nil
				return found, a, err
			}
			f.takeOver = func(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				if lost[c.ID] {
					delete(lost, c.ID)
					return outOfSight(c.ID), nil, nil
				}
				return f.sound.TakeOver(ctx, c, seen)
			}
		},
			"TakeOver/expired key right after the Claim that found it",
			"TakeOver/lease that is over right after the Claim that found it",
		),
		broken("take-over ignores the token that was seen", func(f *faulty) {
			f.takeOver = func(ctx context.Context, c store.Claim, _ store.Token) (store.Found, store.Attempt, error) {
				return f.sound.TakeOver(ctx, c, f.row(ctx, c.ID).Token)
			}
		},
			"TakeOver/other token than the row's does not take over",
			"TakeOver/other token than the row's does not take over an expired key",
		),
		broken("attempts are not counted", func(f *faulty) {
			f.show = func(found store.Found) store.Found {
				found.Attempt = min(found.Attempt, 1)
				return found
			}
		}, "TakeOver/lease that is over", "TakeOver/attempts are counted"),
		broken("attempts are counted on when a key has expired", func(f *faulty) {
			f.takeOver = func(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
				before := f.row(ctx, c.ID).Attempt
				found, a, err := f.sound.TakeOver(ctx, c, seen)
				found.Attempt = before + 1
				return found, a, err
			}
		},
			"TakeOver/expired key begins at attempt 1",
			"TakeOver/expired key not kept begins at attempt 1",
			"TakeOver/expired key in progress begins at attempt 1",
		),
		broken("take-over keeps the old hash", func(f *faulty) {
			f.takeOver = func(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
				c.RequestHash = f.row(ctx, c.ID).RequestHash
				return f.sound.TakeOver(ctx, c, seen)
			}
		}, "TakeOver/claim takes the row's place", "TakeOver/lease that is over"),
		broken("take-over gets a short life", func(f *faulty) {
			f.takeOver = func(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
				c.TTL, c.Lease = shortLife, shortLease
				return f.sound.TakeOver(ctx, c, seen)
			}
		}, "TakeOver/life is counted anew"),
		broken("old reply shows", func(f *faulty) {
			f.show = func(found store.Found) store.Found {
				if found.State == store.NotKept {
					found.Record.Reply = []byte("old")
				}
				return found
			}
		}, "TakeOver/nothing of an expired record is left"),
	}
}

package storetest

import (
	"context"
	"strings"
	"testing"
	"unicode"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// withoutRenew hides all but a store's own methods.
type withoutRenew struct{ store.Store }

func modeFaults() []fault {
	sound := func(*faulty) {}
	cannotRenew := onFaulty(sound)
	cannotRenew.New = func(*testing.T) store.Store { return withoutRenew{newFaulty(sound)} }
	twoModes := onFaulty(sound)
	twoModes.Pair = func(*testing.T) (a, b store.Store) {
		return newFaulty(sound), transactional{plain{newDatabase(faults{})}}
	}
	apart := onFaulty(sound)
	apart.Pair = func(*testing.T) (a, b store.Store) { return newFaulty(sound), newFaulty(sound) }
	notLeased := onDatabase(faults{})
	notLeased.Leased = func(_ *testing.T, s store.Store) store.Store { return s }
	return []fault{
		{"leased store cannot renew", cannotRenew, []string{"Mode/leased store renews"}},
		{"two stores are of two modes", twoModes, []string{"Mode/stores on shared rows have one mode"}},
		{"leased store on shared rows is none", notLeased, []string{"Mode/leased store on a transactional one's rows"}},
		{"two stores share nothing", apart, []string{
			"Shared/claim of one is in progress for the other",
			"Shared/record of one is found by the other",
			"Shared/key that one released is absent for the other",
			"Shared/key that one forgot is absent for the other",
			"Shared/one takes over what the other left to expire",
			"Shared/one is fenced by the other",
			"Shared/one of many wins across both",
		}},
	}
}

func claimFaults() []fault {
	return []fault{
		broken("attempts begin at 0", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				found, a, err := f.sound.Claim(ctx, c)
				if a != nil {
					found.Attempt = 0
				}
				return found, a, err
			}
		}, "Claim/absent key is won as attempt 1", "Look/claims nothing"),
		broken("claim hides who holds the key", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				found, a, err := f.sound.Claim(ctx, c)
				if a == nil && found.State == store.InProgress {
					found = outOfSight(c.ID)
				}
				return found, a, err
			}
		}, "Claim/key in progress is found with what holds it", "Claim/key whose lease is over is not won"),
		broken("claim waits", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				found, a, err := f.sound.Claim(ctx, c)
				if err == nil && a == nil && found.State == store.InProgress {
					<-ctx.Done()
					err = ctx.Err()
				}
				return found, a, err
			}
		}, "Claim/key in progress is not waited for"),
		broken("claim that loses deletes the row", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				found, a, err := f.sound.Claim(ctx, c)
				if err == nil && a == nil {
					_, err = f.sound.Forget(ctx, c.ID)
				}
				return found, a, err
			}
		}, "Claim/losing changes nothing"),
		broken("claim takes what may be taken over", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				found, a, err := f.sound.Claim(ctx, c)
				if err == nil && a == nil {
					return f.sound.TakeOver(ctx, c, found.Token)
				}
				return found, a, err
			}
		}, "Claim/key whose lease is over is not won", "Claim/expired key is not won", "Claim/expired key in progress is not won"),
		broken("claim always wins", func(f *faulty) { f.claim = f.force },
			"Claim/one of many wins", "Claim/completed key is found with its record", "Shared/one of many wins across both"),
		broken("long hashes are cut", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				c.RequestHash = c.RequestHash[:min(len(c.RequestHash), 254)]
				return f.sound.Claim(ctx, c)
			}
		}, "Claim/longest request hash is kept as it is"),
		broken("contexts are not heeded", func(f *faulty) {
			f.claim = func(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
				return f.sound.Claim(context.WithoutCancel(ctx), c)
			}
			f.look = func(ctx context.Context, ids []store.ID) ([]store.Found, error) {
				return f.sound.Look(context.WithoutCancel(ctx), ids)
			}
		}, "Claim/context that has ended is an error", "Look/context that has ended is an error"),
	}
}

func idFaults() []fault {
	renames := func(name string, rename func(store.ID) store.ID, fails ...string) fault {
		return broken(name, func(f *faulty) { f.rename = rename }, fails...)
	}
	return []fault{
		renames("scope does not count", func(id store.ID) store.ID { return store.ID{Key: id.Key} },
			"ID/one key in two scopes is two"),
		renames("scope and key are joined", func(id store.ID) store.ID { return store.ID{Key: id.Scope + id.Key} },
			"ID/names that are one when joined are two"),
		renames("scope and key are joined with a colon", func(id store.ID) store.ID { return store.ID{Key: id.Scope + ":" + id.Key} },
			"ID/names that are one when joined are two"),
		renames("punctuation does not count", func(id store.ID) store.ID {
			id.Key = strings.Map(func(c rune) rune {
				if unicode.IsPunct(c) {
					return -1
				}
				return c
			}, id.Key)
			return id
		}, "ID/every visible ASCII character counts", "ID/what looks like nothing counts"),
		renames("case does not count", func(id store.ID) store.ID {
			return store.ID{Scope: strings.ToLower(id.Scope), Key: strings.ToLower(id.Key)}
		}, "ID/case counts", "ID/every visible ASCII character counts"),
		renames("blanks at the end do not count", func(id store.ID) store.ID {
			return store.ID{Scope: strings.TrimRight(id.Scope, " "), Key: id.Key}
		}, "ID/what looks like nothing counts", "ID/empty scope is a scope"),
		renames("long keys are cut", func(id store.ID) store.ID {
			id.Key = id.Key[:min(len(id.Key), 254)]
			return id
		}, "ID/longest scope and key are kept whole"),
		renames("long scopes are cut", func(id store.ID) store.ID {
			id.Scope = id.Scope[:min(len(id.Scope), 254)]
			return id
		}, "ID/longest scope and key are kept whole"),
	}
}

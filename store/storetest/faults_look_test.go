package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// lookFunc is a Look of f's.
type lookFunc func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error)

func lookFaults() []fault {
	looks := func(name string, look lookFunc, fails ...string) fault {
		return broken(name, func(f *faulty) {
			f.look = func(ctx context.Context, ids []store.ID) ([]store.Found, error) { return look(ctx, f, ids) }
		}, fails...)
	}
	return append(forgetFaults(), []fault{
		looks("Look names no absent key", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			all, err := f.sound.Look(ctx, ids)
			for i := range all {
				if all[i].State == store.Absent {
					all[i] = store.Found{}
				}
			}
			return all, err
		}, "Look/absent key", "Look/at as many as are allowed"),
		looks("Look knows no leases", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			all, err := f.sound.Look(ctx, ids)
			for i := range all {
				all[i].LeaseLeft = 0
			}
			return all, err
		}, "Look/key in progress", "TakeOver/claim takes the row's place"),
		looks("Look hides what has expired", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			all, err := f.sound.Look(ctx, ids)
			for i := range all {
				if all[i].Expired {
					all[i] = store.Found{ID: ids[i]}
				}
			}
			return all, err
		}, "Look/expired key is in the state it was in"),
		looks("Look sorts", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			ids = slices.SortedFunc(slices.Values(ids), func(a, b store.ID) int { return strings.Compare(a.Key, b.Key) })
			return f.sound.Look(ctx, ids)
		}, "Look/keeps the order of the keys", "Look/answers for a key as often as it is asked"),
		looks("Look answers once for a key", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			var once []store.ID
			for _, id := range ids {
				if !slices.Contains(once, id) {
					once = append(once, id)
				}
			}
			return f.sound.Look(ctx, once)
		}, "Look/answers for a key as often as it is asked"),
		looks("Look at none fails", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			if len(ids) == 0 {
				return nil, errors.New("syntax error")
			}
			return f.sound.Look(ctx, ids)
		}, "Look/at none"),
		looks("Look at many fails", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			if len(ids) >= store.MaxLook {
				return nil, errors.New("too many parameters")
			}
			return f.sound.Look(ctx, ids)
		}, "Look/at as many as are allowed"),
		looks("Look claims", func(ctx context.Context, f *faulty, ids []store.ID) ([]store.Found, error) {
			all, err := f.sound.Look(ctx, ids)
			for _, found := range all {
				if found.State == store.Absent {
					_, _, err = f.sound.Claim(ctx, longClaim(found.ID))
				}
			}
			return all, err
		}, "Look/claims nothing"),
	}...)
}

func forgetFaults() []fault {
	return []fault{
		broken("Forget deletes nothing", func(f *faulty) {
			f.forget = func(context.Context, store.ID) (bool, error) { return true, nil }
		},
			"Forget/absent key",
			"Forget/completed key",
			"Forget/key not kept",
			"Forget/key in progress",
			"Forget/key whose lease is over",
			"Forget/expired key",
			"Shared/key that one forgot is absent for the other",
		),
		broken("Forget reports nothing", func(f *faulty) {
			f.forget = func(ctx context.Context, id store.ID) (bool, error) {
				_, err := f.sound.Forget(ctx, id)
				return false, err
			}
		}, "Forget/completed key", "Forget/expired key"),
		broken("Forget deletes the scope", func(f *faulty) {
			f.forget = func(ctx context.Context, id store.ID) (bool, error) {
				n, err := f.forgetAll(ctx, func(other store.ID) bool { return other.Scope == id.Scope })
				return n > 0, err
			}
		}, "Forget/leaves other keys alone"),
		broken("Forget deletes the key in every scope", func(f *faulty) {
			f.forget = func(ctx context.Context, id store.ID) (bool, error) {
				n, err := f.forgetAll(ctx, func(other store.ID) bool { return other.Key == id.Key })
				return n > 0, err
			}
		}, "Forget/leaves other keys alone"),
	}
}

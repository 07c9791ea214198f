package storetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// faulty is a memory store whose methods can be replaced. Each field is sound at first.
type faulty struct {
	sound *memory.Store

	claim    func(context.Context, store.Claim) (store.Found, store.Attempt, error)
	takeOver func(context.Context, store.Claim, store.Token) (store.Found, store.Attempt, error)
	look     func(context.Context, []store.ID) ([]store.Found, error)
	forget   func(context.Context, store.ID) (bool, error)
	sweep    func(context.Context, store.Cursor, int) (store.Cursor, int, error)
	renew    func(context.Context, []store.Held, time.Duration) ([]store.Token, error)

	rename func(store.ID) store.ID                                     // each id on its way in
	show   func(store.Found) store.Found                               // all that Claim, TakeOver and Look find
	spoil  func(call context.Context, c store.Claim, a *faultyAttempt) // each attempt that won

	mu  sync.Mutex
	ids map[store.ID]bool // every id that was claimed
}

// faultyAttempt is an attempt of a faulty store. Its fields can be replaced, as the store's.
type faultyAttempt struct {
	context  func(context.Context) context.Context
	complete func(context.Context, store.Record, bool) error
	release  func(context.Context) error
}

func newFaulty(breakIt func(*faulty)) *faulty {
	s := memory.New()
	f := &faulty{
		sound: s,
		claim: s.Claim, takeOver: s.TakeOver, look: s.Look, forget: s.Forget, sweep: s.Sweep, renew: s.Renew,
		rename: func(id store.ID) store.ID { return id },
		show:   func(found store.Found) store.Found { return found },
		spoil:  func(context.Context, store.Claim, *faultyAttempt) {},
		ids:    map[store.ID]bool{},
	}
	breakIt(f)
	return f
}

// row looks at one row of the sound store.
func (f *faulty) row(ctx context.Context, id store.ID) store.Found {
	found, err := f.sound.Look(context.WithoutCancel(ctx), []store.ID{id})
	if err != nil {
		panic(err) // a memory store under a live context does not fail
	}
	return found[0]
}

// force claims the key whoever holds it.
func (f *faulty) force(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.sound.Forget(ctx, c.ID); err != nil {
		return store.Found{}, nil, err
	}
	return f.sound.Claim(ctx, c)
}

// forgetAll deletes the rows that which says.
func (f *faulty) forgetAll(ctx context.Context, which func(store.ID) bool) (deleted int, err error) {
	f.mu.Lock()
	ids := slices.Collect(maps.Keys(f.ids))
	f.mu.Unlock()
	for _, id := range ids {
		if !which(id) {
			continue
		}
		existed, err := f.sound.Forget(ctx, id)
		if err != nil {
			return deleted, err
		}
		if existed {
			deleted++
		}
	}
	return deleted, nil
}

func (f *faulty) Transactional() bool { return false }

func (f *faulty) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	id := c.ID
	c.ID = f.rename(id)
	f.mu.Lock()
	f.ids[c.ID] = true
	f.mu.Unlock()
	found, a, err := f.claim(ctx, c)
	return f.shown(id, found), f.spoilt(ctx, c, a), err
}

func (f *faulty) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	id := c.ID
	c.ID = f.rename(id)
	found, a, err := f.takeOver(ctx, c, seen)
	return f.shown(id, found), f.spoilt(ctx, c, a), err
}

func (f *faulty) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	renamed := make([]store.ID, len(ids))
	for i, id := range ids {
		renamed[i] = f.rename(id)
	}
	all, err := f.look(ctx, renamed)
	for i := range all {
		if i < len(ids) && all[i].ID == renamed[i] {
			all[i].ID = ids[i]
		}
		all[i] = f.show(all[i])
	}
	return all, err
}

func (f *faulty) Forget(ctx context.Context, id store.ID) (bool, error) {
	return f.forget(ctx, f.rename(id))
}

func (f *faulty) Sweep(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
	return f.sweep(ctx, from, limit)
}

func (f *faulty) Renew(ctx context.Context, held []store.Held, lease time.Duration) ([]store.Token, error) {
	return f.renew(ctx, held, lease)
}

func (f *faulty) shown(id store.ID, found store.Found) store.Found {
	found.ID = id
	return f.show(found)
}

func (f *faulty) spoilt(ctx context.Context, c store.Claim, a store.Attempt) store.Attempt {
	if a == nil {
		return nil
	}
	s := &faultyAttempt{a.Context, a.Complete, a.Release}
	f.spoil(ctx, c, s)
	return s
}

func (a *faultyAttempt) Context(ctx context.Context) context.Context { return a.context(ctx) }

func (a *faultyAttempt) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	return a.complete(ctx, r, keepWrites)
}

func (a *faultyAttempt) Release(ctx context.Context) error { return a.release(ctx) }

// onFaulty is a configuration of stores that breakIt broke.
func onFaulty(breakIt func(*faulty)) Config {
	return Config{
		New: func(*testing.T) store.Store { return newFaulty(breakIt) },
		Pair: func(*testing.T) (a, b store.Store) {
			f := newFaulty(breakIt)
			return f, f
		},
	}
}

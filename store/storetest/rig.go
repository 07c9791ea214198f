package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

const (
	defaultPatience = 10 * time.Second
	pollEvery       = time.Millisecond
)

// rig is what one subtest works with.
type rig struct {
	store    store.Store // the store under test
	leased   store.Store // the same, or a leased one on the same rows; nil where there is none
	other    store.Store // a second one on the same rows; nil unless the subtest needs two
	effects  Effects     // empty unless the subtest needs them
	patience time.Duration
}

func newRig(t *testing.T, c Config, n needs) rig {
	t.Helper()
	r := rig{patience: c.Patience}
	if r.patience == 0 {
		r.patience = defaultPatience
	}
	if n&twoStores != 0 {
		r.store, r.other = c.Pair(t)
	} else {
		r.store = c.New(t)
	}
	switch {
	case !r.store.Transactional():
		r.leased = r.store
	case c.Leased != nil:
		r.leased = c.Leased(t, r.store)
	}
	if n&handlerWrites != 0 {
		r.effects = c.Effects(t, r.store)
	}
	return r
}

// within runs call and fails t where it does not return in time, even if the store does not heed its context.
//
// The context lives as long as t: whether an attempt depends on it is a subtest of its own.
func (r rig) within(t *testing.T, what string, call func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.patience)
	t.Cleanup(cancel)
	r.await(ctx, t, what, call)
}

// atCleanup is within for cleanups, in which t's context has ended.
func (r rig) atCleanup(t *testing.T, what string, call func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), r.patience)
	defer cancel()
	r.await(ctx, t, what, call)
}

func (r rig) await(ctx context.Context, t *testing.T, what string, call func(context.Context)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("%s: no answer within %v", what, r.patience)
	}
}

// claim calls s.Claim. The returned attempt is nil unless the claim won.
func (r rig) claim(t *testing.T, s store.Store, c store.Claim) (store.Found, *held) {
	t.Helper()
	var got claimed
	r.within(t, "Claim", func(ctx context.Context) { got.found, got.attempt, got.err = s.Claim(ctx, c) })
	return got.found, r.hold(t, s, "Claim", got)
}

// win claims a key that is absent.
func (r rig) win(t *testing.T, s store.Store, c store.Claim) *held {
	t.Helper()
	found, h := r.claim(t, s, c)
	if h == nil {
		t.Fatalf("Claim of an absent key did not win, it found %s", describe(found))
	}
	return h
}

// lose claims a key that something stands in the way of, and returns that. It waits for what s does behind its answer: a
// claim that lost may be in the way of the next until then.
func (r rig) lose(t *testing.T, s store.Store, c store.Claim) store.Found {
	t.Helper()
	found, h := r.claim(t, s, c)
	if h != nil {
		t.Fatalf("Claim won a key that is not absent, as %s", describe(found))
	}
	r.drain(t, s)
	return found
}

// takeOver calls s.TakeOver. The returned attempt is nil unless the claim won.
func (r rig) takeOver(t *testing.T, s store.Store, c store.Claim, seen store.Token) (store.Found, *held) {
	t.Helper()
	var got claimed
	r.within(t, "TakeOver", func(ctx context.Context) { got.found, got.attempt, got.err = s.TakeOver(ctx, c, seen) })
	return got.found, r.hold(t, s, "TakeOver", got)
}

// winOver takes over a key that may be taken over.
func (r rig) winOver(t *testing.T, s store.Store, c store.Claim, seen store.Token) *held {
	t.Helper()
	found, h := r.takeOver(t, s, c, seen)
	if h == nil {
		t.Fatalf("TakeOver did not win, it found %s", describe(found))
	}
	return h
}

// loseOver tries to take over a key that may not be taken over, and returns what TakeOver found. It waits as lose does.
func (r rig) loseOver(t *testing.T, s store.Store, c store.Claim, seen store.Token) store.Found {
	t.Helper()
	found, h := r.takeOver(t, s, c, seen)
	if h != nil {
		t.Fatalf("TakeOver won a key that it may not take over, as %s", describe(found))
	}
	r.drain(t, s)
	return found
}

// drain waits for what s does behind its answers, if it does anything there.
func (r rig) drain(t *testing.T, s store.Store) {
	t.Helper()
	d, ok := s.(store.Drainer)
	if !ok {
		return
	}
	var err error
	r.within(t, "Drain", func(ctx context.Context) { err = d.Drain(ctx) })
	if err != nil {
		t.Fatalf("Drain: %v", err)
	}
}

func (r rig) look(t *testing.T, s store.Store, ids ...store.ID) []store.Found {
	t.Helper()
	var found []store.Found
	var err error
	r.within(t, "Look", func(ctx context.Context) { found, err = s.Look(ctx, ids) })
	if err != nil {
		t.Fatalf("Look: %v", err)
	}
	if len(found) != len(ids) {
		t.Fatalf("Look at %d ids found %d", len(ids), len(found))
	}
	return found
}

// row looks at one key of the store under test.
func (r rig) row(t *testing.T, id store.ID) store.Found {
	t.Helper()
	return r.look(t, r.store, id)[0]
}

func (r rig) forget(t *testing.T, id store.ID) (existed bool) {
	t.Helper()
	var err error
	r.within(t, "Forget", func(ctx context.Context) { existed, err = r.store.Forget(ctx, id) })
	if err != nil {
		t.Fatalf("Forget: %v", err)
	}
	return existed
}

func (r rig) sweep(t *testing.T, from store.Cursor, limit int) (next store.Cursor, deleted int) {
	t.Helper()
	var err error
	r.within(t, "Sweep", func(ctx context.Context) { next, deleted, err = r.store.Sweep(ctx, from, limit) })
	if err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	if deleted < 0 || deleted > limit {
		t.Fatalf("Sweep with limit %d deleted %d", limit, deleted)
	}
	return next, deleted
}

func (r rig) renew(t *testing.T, lease time.Duration, claims ...store.Held) (lost []store.Token) {
	t.Helper()
	renewer, ok := r.leased.(store.Renewer)
	if !ok {
		t.Fatalf("%T is leased and not a store.Renewer", r.leased)
	}
	var err error
	r.within(t, "Renew", func(ctx context.Context) { lost, err = renewer.Renew(ctx, claims, lease) })
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	return lost
}

// atOnce makes n calls that begin together, and returns their results when all have returned.
func atOnce[T any](t *testing.T, r rig, what string, n int, call func(ctx context.Context, i int) T) []T {
	t.Helper()
	results := make([]T, n)
	r.within(t, what, func(ctx context.Context) {
		var calls sync.WaitGroup
		begin := make(chan struct{})
		for i := range n {
			calls.Go(func() {
				<-begin
				results[i] = call(ctx, i)
			})
		}
		close(begin)
		calls.Wait()
	})
	return results
}

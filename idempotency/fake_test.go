package idempotency_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// fake is a memory store that fails on demand and remembers what it was asked. Its hooks are set before it is used.
type fake struct {
	*memory.Store
	transactional bool

	// finds, if set, is what Claim, TakeOver and Look find: nothing is ever won.
	finds func(store.Claim) store.Found
	// The others, if set, come first, and an error of theirs is the answer. Try counts from 1.
	onClaim, onTakeOver, onLook func(context.Context) error
	onComplete, onRelease       func(ctx context.Context, try int) error

	mu          sync.Mutex
	claims      []store.Claim // those of TakeOver too
	takeOvers   int
	completions []completion
	releases    int
}

type completion struct {
	record     store.Record
	keepWrites bool
}

func leased() *fake        { return &fake{Store: memory.New()} }
func transactional() *fake { return &fake{Store: memory.New(), transactional: true} }

// eachMode is for what holds in both modes.
func eachMode() map[string]func() *fake {
	return map[string]func() *fake{"leased": leased, "transactional": transactional}
}

func (f *fake) Transactional() bool { return f.transactional }

func (f *fake) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	f.mu.Lock()
	f.claims = append(f.claims, c)
	f.mu.Unlock()
	if f.onClaim != nil {
		if err := f.onClaim(ctx); err != nil {
			return store.Found{}, nil, err
		}
	}
	if f.finds != nil {
		return f.finds(c), nil, nil
	}
	return f.won(f.Store.Claim(ctx, c))
}

func (f *fake) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	f.mu.Lock()
	f.claims = append(f.claims, c)
	f.takeOvers++
	f.mu.Unlock()
	if f.onTakeOver != nil {
		if err := f.onTakeOver(ctx); err != nil {
			return store.Found{}, nil, err
		}
	}
	if f.finds != nil {
		return f.finds(c), nil, nil
	}
	return f.won(f.Store.TakeOver(ctx, c, seen))
}

func (f *fake) won(found store.Found, a store.Attempt, err error) (store.Found, store.Attempt, error) {
	if a != nil {
		a = &fakeAttempt{Attempt: a, fake: f}
	}
	return found, a, err
}

func (f *fake) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	if f.onLook != nil {
		if err := f.onLook(ctx); err != nil {
			return nil, err
		}
	}
	return f.Store.Look(ctx, ids)
}

// asked returns the claims that were sent.
func (f *fake) asked() []store.Claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.claims)
}

// completed returns the completions that were tried.
func (f *fake) completed() []completion {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.completions)
}

func (f *fake) released() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.releases
}

type fakeAttempt struct {
	store.Attempt
	fake *fake
}

type attemptKey struct{}

// Context marks the context as the attempt's.
func (a *fakeAttempt) Context(ctx context.Context) context.Context {
	return context.WithValue(a.Attempt.Context(ctx), attemptKey{}, true)
}

func (a *fakeAttempt) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	f := a.fake
	f.mu.Lock()
	f.completions = append(f.completions, completion{r, keepWrites})
	try := len(f.completions)
	f.mu.Unlock()
	if f.onComplete != nil {
		if err := f.onComplete(ctx, try); err != nil {
			return err
		}
	}
	return a.Attempt.Complete(ctx, r, keepWrites)
}

func (a *fakeAttempt) Release(ctx context.Context) error {
	f := a.fake
	f.mu.Lock()
	f.releases++
	try := f.releases
	f.mu.Unlock()
	if f.onRelease != nil {
		if err := f.onRelease(ctx, try); err != nil {
			return err
		}
	}
	return a.Attempt.Release(ctx)
}

// errDown is what a store says that cannot be reached.
func errDown() error { return errors.New("the store is down") }

// failing is a hook that fails at the first n tries.
func failing(n int, err error) func(context.Context, int) error {
	return func(_ context.Context, try int) error {
		if try <= n {
			return err
		}
		return nil
	}
}

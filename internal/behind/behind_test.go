package behind_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/internal/behind"
)

// ended returns whether and how a Wait has ended. Within a bubble, after synctest.Wait, it cannot be about to.
func ended(wait <-chan error) (bool, error) {
	select {
	case err := <-wait:
		return true, err
	default:
		return false, nil
	}
}

func waiting(ctx context.Context, g *behind.Group) <-chan error {
	done := make(chan error, 1)
	go func() { done <- g.Wait(ctx) }()
	return done
}

func TestWaitReturnsAtOnceWhereNothingRuns(t *testing.T) {
	t.Parallel()
	var g behind.Group
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(ctx); err != nil {
		t.Errorf("Wait = %v, want nil: there is nothing to wait for", err)
	}
	done := make(chan struct{})
	g.Go(func() { close(done) })
	<-done
	if err := g.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v after work", err)
	}
}

func TestWaitWaitsForAllThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g behind.Group
		letGo := make(chan struct{})
		const works = 3
		for range works {
			g.Go(func() { <-letGo })
		}
		waits := []<-chan error{waiting(t.Context(), &g), waiting(t.Context(), &g)}
		for left := works; left > 0; left-- {
			synctest.Wait()
			for _, w := range waits {
				if done, err := ended(w); done {
					t.Fatalf("Wait = %v while %d run", err, left)
				}
			}
			letGo <- struct{}{}
		}
		synctest.Wait()
		for _, w := range waits {
			if done, err := ended(w); !done || err != nil {
				t.Errorf("Wait returned = %v, %v; want nil", done, err)
			}
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g behind.Group
		letGo := make(chan struct{})
		g.Go(func() { <-letGo })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		patient := waiting(t.Context(), &g)
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %v, want DeadlineExceeded", err)
		}
		close(letGo)
		if err := <-patient; err != nil {
			t.Errorf("the other Wait = %v", err)
		}
	})
}

func TestWorkMayBeginDuringAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g behind.Group
		first, second := make(chan struct{}), make(chan struct{})
		g.Go(func() { <-first })
		wait := waiting(t.Context(), &g)
		synctest.Wait()
		g.Go(func() { <-second })
		close(first)
		synctest.Wait()
		if done, err := ended(wait); done {
			t.Errorf("Wait = %v while one runs", err)
		}
		close(second)
		if err := <-wait; err != nil {
			t.Errorf("Wait = %v", err)
		}
	})
}

func TestAGroupCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	var g behind.Group
	var ran atomic.Int32
	for i := range 3 {
		letGo := make(chan struct{})
		g.Go(func() { <-letGo; ran.Add(1) })
		wait := waiting(t.Context(), &g)
		close(letGo)
		if err := <-wait; err != nil || ran.Load() != int32(i)+1 {
			t.Errorf("round %d: Wait = %v after %d ran", i, err, ran.Load())
		}
	}
}

func TestWorkThatEndsItsGoroutineIsDone(t *testing.T) {
	t.Parallel()
	var g behind.Group
	g.Go(runtime.Goexit)
	if err := g.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
}

func TestGoAndWaitFromManyGoroutines(t *testing.T) {
	t.Parallel()
	var g behind.Group
	var ran atomic.Int32
	const many = 100
	started := make(chan struct{})
	g.Go(func() {
		for range many {
			g.Go(func() { ran.Add(1) })
		}
		close(started)
	})
	var waits []<-chan error
	for range 10 {
		waits = append(waits, waiting(t.Context(), &g))
	}
	<-started
	for _, w := range append(waits, waiting(t.Context(), &g)) {
		if err := <-w; err != nil {
			t.Errorf("Wait = %v", err)
		}
	}
	if ran.Load() != many {
		t.Errorf("%d of %d ran", ran.Load(), many)
	}
}

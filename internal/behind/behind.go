// Package behind counts work that may go on after a call was answered, and lets its owner wait for it.
package behind

import (
	"context"
	"sync"
)

// Group counts work in flight. The zero Group is ready; all methods are safe for concurrent use. Unlike a sync.WaitGroup
// it may be waited for while new work begins.
type Group struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to zero; nil while nobody waits
}

// Go runs f in a goroutine of its own.
func (g *Group) Go(f func()) {
	g.Begin()
	go func() {
		defer g.End()
		f()
	}()
}

// Begin counts work of the caller's own until End.
func (g *Group) Begin() {
	g.mu.Lock()
	g.running++
	g.mu.Unlock()
}

// End is called once for every Begin.
func (g *Group) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Wait waits until nothing runs, or ctx ends, whose error it returns then.
func (g *Group) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.running == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// ran is what came of a run whose handler returned.
type ran struct {
	reply      Reply
	keep       bool
	record     store.Record // where keep is set
	notKept    error        // why record does not hold the reply
	keepWrites bool
}

// run calls the handler under its claim, and makes of its reply what is to be stored. Where the handler, or the rule that
// says what is kept, panics or ends its goroutine, the key is released on the way up: nothing is recovered.
func (g *Guard) run(ctx, runCtx context.Context, k *keyed, attempt store.Attempt, run func(context.Context) Reply) (r ran) {
	state := &runState{info: Info{Scope: k.scope, Key: k.key, Attempt: k.attempt}}
	returned := false
	defer func() {
		if !returned {
			g.abandon(ctx, k, attempt)
		}
	}()
	r.reply = run(attempt.Context(context.WithValue(runCtx, runKey{}, state)))
	r.keepWrites = state.keepWrites.Load()
	if r.keep = g.keep(ctx, k.Call, r.reply); r.keep {
		r.record, r.notKept = g.record(k, r.reply)
	}
	returned = true
	return r
}

// runContext is what the handler's context descends from. It ends when the lease is nearly over; whether it ends with the
// client too, or else with a limit of its own, is the policy's.
func (g *Guard) runContext(ctx context.Context, k *keyed) (context.Context, context.CancelFunc) {
	var limit time.Time
	if k.policy.Detached {
		ctx = context.WithoutCancel(ctx)
		if k.policy.RunLimit > 0 {
			limit = time.Now().Add(k.policy.RunLimit)
		}
	}
	ctx, k.lease = startLease(ctx, store.Held{ID: k.id, Token: k.token}, k.sent, k.policy.Lease, limit)
	r := g.renewerOf(k.policy)
	if r == nil {
		return ctx, k.lease.stop
	}
	r.add(k.lease)
	return ctx, func() {
		r.remove(k.lease)
		k.lease.stop()
	}
}

// renews reports whether leases are renewed: a transactional attempt lasts as long as its transaction, and a policy or a
// store may have no renewal.
func (g *Guard) renews(p Policy) bool {
	_, can := g.store.(store.Renewer)
	return can && !g.store.Transactional() && !p.NoRenewal
}

// renewerOf returns what renews leases of the policy's length, and nil where they are not renewed.
func (g *Guard) renewerOf(p Policy) *renewer {
	s, ok := g.store.(store.Renewer)
	if !ok || !g.renews(p) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.renewers[p.Lease]
	if r == nil {
		r = newRenewer(s, p.Lease, g)
		g.renewers[p.Lease] = r
	}
	return r
}

// abandon releases the key of a handler that did not return.
func (g *Guard) abandon(ctx context.Context, k *keyed, attempt store.Attempt) {
	settleCtx, cancel := g.settleContext(ctx)
	defer cancel()
	err := attempt.Release(settleCtx)
	if err != nil {
		g.releaseBehind(ctx, k, attempt, err)
	}
	g.observe(ctx, k, Event{Outcome: Released, Err: errors.Join(errNoReturn, err)})
}

var errNoReturn = errors.New("idempotency: the handler did not return: it panicked or ended its goroutine")

// settleContext does not end with the caller, but in a bounded time, so that the caller is answered.
func (g *Guard) settleContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
}

// settleTimeout is how long an answer waits for its attempt to be settled.
const settleTimeout = 10 * time.Second

package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// ErrLeaseEnding is the cause with which a leased handler's context ends when its lease is nearly over: another attempt
// may take the key over from then on.
var ErrLeaseEnding = errors.New("idempotency: the lease on the key is about to end")

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
func (g *Guard) run(ctx context.Context, k *keyed, attempt store.Attempt, run func(context.Context) Reply) (r ran) {
	state := &runState{info: Info{Scope: k.scope, Key: k.key, Attempt: k.attempt}}
	runCtx, cancel := g.runContext(ctx, k)
	defer cancel()
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

// runContext is what the handler's context descends from. A transaction ends with its call; a leased handler runs on
// without its client, until its lease is nearly over.
func (g *Guard) runContext(ctx context.Context, k *keyed) (context.Context, context.CancelFunc) {
	if g.store.Transactional() {
		return ctx, func() {}
	}
	nearly := k.leaseEnd.Add(-k.policy.Lease / leaseMargin)
	return context.WithDeadlineCause(context.WithoutCancel(ctx), nearly, ErrLeaseEnding)
}

// leaseMargin is the part of a lease, one in so many, that is left for settling when the handler's context ends.
const leaseMargin = 10

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

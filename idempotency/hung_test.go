package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

const (
	lease = time.Second
	ttl   = 10 * time.Second
)

// shortLived are the options of the tests within a bubble, where time passes when all wait for it: leases that end.
func shortLived(opts ...idempotency.Option) []idempotency.Option {
	return append(opts, idempotency.WithLease(lease), idempotency.WithTTL(ttl), idempotency.WithoutRenewal())
}

// pass lets the bubble's time go on.
func pass(d time.Duration) { <-time.After(d) }

// hung is a call whose handler goes on until it is let go.
type hung struct {
	ctx   context.Context // the handler's
	info  idempotency.Info
	reply chan<- idempotency.Reply
	done  <-chan result
}

// hang starts a call, and returns once its handler runs.
func (r *rig) hang(ctx context.Context, t *testing.T, c idempotency.Call) *hung {
	t.Helper()
	reply, done, running := make(chan idempotency.Reply), make(chan result, 1), make(chan struct{})
	h := &hung{reply: reply, done: done}
	go func() {
		done <- r.do(ctx, c, func(ctx context.Context) idempotency.Reply {
			h.ctx = ctx
			h.info, _ = idempotency.FromContext(ctx)
			close(running)
			return <-reply
		})
	}()
	select {
	case <-running:
	case res := <-done:
		t.Fatalf("the call did not run: %v, replayed = %v, %v", res.reply, res.replayed, res.err)
	}
	return h
}

// returns lets the handler return, and says how its call ended.
func (h *hung) returns(reply idempotency.Reply) result {
	h.reply <- reply
	return <-h.done
}

package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/internal/behind"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Causes with which a handler's context ends.
var (
	// ErrLeaseEnding: the lease is nearly over and could not be renewed, or is not to be. Another attempt may take the key
	// over from then on. A transactional handler's context ends with it when its transaction has lasted a lease.
	ErrLeaseEnding = errors.New("idempotency: the lease on the key is about to end")
	// ErrLeaseLost: another attempt holds the key, or an operator freed it. What the handler does from then on is not kept.
	ErrLeaseLost = errors.New("idempotency: the lease on the key is lost")
	// ErrRunLimit: a handler that runs on without its client has run as long as it may.
	ErrRunLimit = errors.New("idempotency: the handler ran as long as it may")
)

// leaseMargin is the part of a lease, one in so many, that is left for settling when the handler's context ends.
const leaseMargin = 10

// lease is a running attempt's right to its key, by this process's clock and on the safe side: it is counted from before
// the claim, or the renewal, was sent.
type lease struct {
	held   store.Held
	length time.Duration
	cancel context.CancelCauseFunc
	limit  time.Time   // of a handler that runs on without its client; zero where there is none
	nearly *time.Timer // ends the handler's context

	mu  sync.Mutex
	end time.Time
}

// fitDeadline refuses a call whose time is over, before anything is sent to the store. Where a handler ends with its call
// and its lease is not renewed, the lease is made no longer than the call's deadline needs.
func (g *Guard) fitDeadline(ctx context.Context, p *Policy) error {
	if ctx.Err() != nil {
		return callError(ctx, ctx.Err())
	}
	deadline, ok := ctx.Deadline()
	if !ok || p.Detached || g.renews(*p) {
		return nil
	}
	left := time.Until(deadline).Truncate(time.Millisecond)
	if left <= 0 {
		return callError(ctx, context.DeadlineExceeded)
	}
	// The handler's context ends a margin before its lease: then both end at the deadline.
	p.Lease = min(p.Lease, left*leaseMargin/(leaseMargin-1))
	return nil
}

// startLease counts a lease that was asked for at sent, and returns a context that ends when it is nearly over, or at the
// limit, if that is not zero.
func startLease(ctx context.Context, held store.Held, sent time.Time, length time.Duration, limit time.Time) (context.Context, *lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lease{held: held, length: length, cancel: cancel, limit: limit, end: sent.Add(length)}
	l.nearly = time.AfterFunc(l.left(), l.expire)
	return ctx, l
}

// left is how long the handler may still run. The caller has locked l, or has it alone.
func (l *lease) left() time.Duration {
	near := l.end.Add(-l.length / leaseMargin)
	if !l.limit.IsZero() && l.limit.Before(near) {
		near = l.limit
	}
	return time.Until(near)
}

func (l *lease) expire() {
	if !l.limit.IsZero() && !time.Now().Before(l.limit) {
		l.cancel(ErrRunLimit)
		return
	}
	l.cancel(ErrLeaseEnding)
}

// extend counts the lease from a renewal that was asked for at sent.
func (l *lease) extend(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = sent.Add(l.length)
	if l.nearly.Stop() { // else it has ended the context
		l.nearly.Reset(l.left())
	}
}

// until returns when the lease ends.
func (l *lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// stop ends the handler's context, once the attempt is settled.
func (l *lease) stop() {
	l.nearly.Stop()
	l.cancel(nil)
}

// renewer renews a process's live leases of one length, all in one statement, every third of it. It costs nothing but a
// timer while they are short-lived.
type renewer struct {
	store  store.Renewer
	length time.Duration
	logger *slog.Logger
	behind *behind.Group

	mu    sync.Mutex
	live  map[*lease]struct{}
	timer *time.Timer
}

func newRenewer(s store.Renewer, length time.Duration, g *Guard) *renewer {
	r := &renewer{store: s, length: length, logger: g.logger, behind: &g.behind, live: make(map[*lease]struct{})}
	r.timer = time.AfterFunc(length, r.tick)
	r.timer.Stop()
	return r
}

func (r *renewer) add(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[l] = struct{}{}
	if len(r.live) == 1 {
		r.timer.Reset(r.length / 3)
	}
}

func (r *renewer) remove(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, l)
	if len(r.live) == 0 {
		r.timer.Stop()
	}
}

// tick renews what is live. After a failure it comes back sooner, until the leases are nearly over.
func (r *renewer) tick() {
	r.behind.Begin()
	defer r.behind.End()
	next := r.length / 3
	for batch := range slices.Chunk(r.leases(), store.MaxLook) {
		if err := r.renew(batch); err != nil {
			next = r.length / leaseMargin
			r.logger.LogAttrs(context.Background(), slog.LevelWarn, "idempotency: leases could not be renewed; trying again",
				slog.Int("leases", len(batch)), slog.Any("error", err))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 {
		r.timer.Reset(next)
	}
}

func (r *renewer) leases() []*lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*lease, 0, len(r.live))
	for l := range r.live {
		all = append(all, l)
	}
	return all
}

func (r *renewer) renew(leases []*lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.length/3)
	defer cancel()
	held := make([]store.Held, len(leases))
	for i, l := range leases {
		held[i] = l.held
	}
	sent := time.Now()
	lost, err := r.store.Renew(ctx, held, r.length)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if slices.Contains(lost, l.held.Token) {
			l.cancel(ErrLeaseLost)
		} else {
			l.extend(sent)
		}
	}
	return nil
}

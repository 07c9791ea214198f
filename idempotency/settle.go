package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// settle ends the attempt: it keeps the reply or releases the key, and says what the caller gets. It never depends on the
// caller still being there.
func (g *Guard) settle(ctx context.Context, k *keyed, attempt store.Attempt, r ran) (Reply, bool, error) {
	if !r.keep {
		return g.release(ctx, k, attempt, r.reply, nil)
	}
	if r.notKept != nil && !errors.Is(r.notKept, errTooLarge) && g.store.Transactional() {
		return g.release(ctx, k, attempt, r.reply, refusal(code.Code_INTERNAL, ReasonReplyUnencodable, r.notKept,
			"the reply could not be encoded, and the transaction was undone; a retry runs"))
	}
	e := Event{Outcome: Executed}
	if r.notKept != nil {
		e = Event{Outcome: NotKept, Err: r.notKept}
	}
	settleCtx, cancel := g.settleContext(ctx)
	defer cancel()
	err := attempt.Complete(settleCtx, r.record, r.keepWrites)
	switch {
	case err == nil:
	case errors.Is(err, store.ErrFenced):
		return g.fenced(settleCtx, k)
	case g.store.Transactional():
		return g.undo(ctx, k, err)
	default:
		e.Err = errors.Join(e.Err, err)
		g.completeBehind(ctx, k, attempt, r.record, err)
	}
	g.observe(ctx, k, e)
	return r.reply, false, nil
}

// release ends an attempt without keeping its reply. The caller gets the refusal instead of the reply, where there is one.
func (g *Guard) release(ctx context.Context, k *keyed, attempt store.Attempt, reply Reply, instead *Error) (Reply, bool, error) {
	settleCtx, cancel := g.settleContext(ctx)
	defer cancel()
	err := attempt.Release(settleCtx)
	if err != nil {
		g.releaseBehind(ctx, k, attempt, err)
	}
	switch {
	case instead != nil:
		return g.refuse(ctx, k, Failed, instead)
	case g.store.Transactional() && reply.Error != nil && store.IsConflict(reply.Error.Cause):
		return g.undo(ctx, k, reply.Error.Cause)
	case g.store.Transactional() && err != nil:
		// The transaction's connection is gone, and with it most likely what the handler's error is about.
		return g.undo(ctx, k, err)
	case !g.store.Transactional() && !time.Now().Before(k.lease.until()):
		// Another attempt may have taken the key over, which Release does not tell.
		found, err := g.store.Look(settleCtx, []store.ID{k.id})
		if err != nil {
			return g.refuse(ctx, k, Failed, storeUnavailable(err))
		}
		if found[0].State != store.Absent {
			return g.answer(ctx, k, found[0])
		}
	}
	g.observe(ctx, k, Event{Outcome: Released, Err: err})
	return reply, false, nil
}

// errRunAgain is how an attempt that met a conflict says that its call begins again.
var errRunAgain = errors.New("idempotency: run again")

// undo ends an attempt whose transaction was not committed. Where it met a conflict, the call may begin again.
func (g *Guard) undo(ctx context.Context, k *keyed, err error) (Reply, bool, error) {
	if store.IsConflict(err) && k.conflicts < k.policy.ConflictRetries && ctx.Err() == nil {
		k.conflicts++
		return Reply{}, false, errRunAgain
	}
	return g.refuse(ctx, k, Failed, undone(err))
}

// undone says what the caller is told when an attempt's transaction was not committed, or is not known to be: in the
// second case a retry finds out.
func undone(err error) *Error {
	switch {
	case store.IsConflict(err):
		return refusal(code.Code_ABORTED, ReasonTxConflict, err,
			"the transaction met a concurrent one, and nothing was done; retry with the same key").retryIn(0)
	case errors.Is(err, store.ErrRejected):
		return refusal(code.Code_INTERNAL, ReasonTxRejected, err, "the call's transaction could not be committed")
	default:
		return storeUnavailable(err)
	}
}

// fenced answers the caller of an attempt that lost its key, from the row: the caller never hears the attempt's own reply.
func (g *Guard) fenced(ctx context.Context, k *keyed) (Reply, bool, error) {
	found, err := g.store.Look(ctx, []store.ID{k.id})
	if err != nil {
		return g.refuse(ctx, k, Failed, storeUnavailable(err))
	}
	return g.answer(ctx, k, found[0])
}

// completeBehind goes on trying to keep a leased attempt's reply after its caller was answered, until its lease ends.
func (g *Guard) completeBehind(ctx context.Context, k *keyed, attempt store.Attempt, record store.Record, first error) {
	g.tryBehind(ctx, k, "idempotency: a reply could not be kept; trying again until the lease ends", first,
		func(ctx context.Context) error { return attempt.Complete(ctx, record, false) })
}

// releaseBehind goes on trying to release a leased attempt's key. A transactional one needs no more: what ends its
// connection ends its claim.
func (g *Guard) releaseBehind(ctx context.Context, k *keyed, attempt store.Attempt, first error) {
	if g.store.Transactional() {
		g.logger.LogAttrs(ctx, slog.LevelWarn, "idempotency: a transaction could not be rolled back",
			slog.String("key_digest", k.digest()), slog.Any("error", first))
		return
	}
	g.tryBehind(ctx, k, "idempotency: a key could not be released; trying again until the lease ends", first, attempt.Release)
}

func (g *Guard) tryBehind(ctx context.Context, k *keyed, what string, first error, try func(context.Context) error) {
	log := func(level slog.Level, text string, err error) {
		g.logger.LogAttrs(ctx, level, text, slog.String("procedure", k.Procedure),
			slog.String("key_digest", k.digest()), slog.Any("error", err))
	}
	log(slog.LevelWarn, what, first)
	g.behind.Go(func() {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), k.lease.until())
		defer cancel()
		err := first
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			select {
			case <-ctx.Done():
				log(slog.LevelError, "idempotency: the lease ended before the attempt was settled; a retry may run again", err)
				return
			case <-time.After(pause):
			}
			err = try(ctx)
			switch {
			case err == nil:
				return
			case errors.Is(err, store.ErrFenced):
				log(slog.LevelError, "idempotency: the key was lost before the attempt was settled; a retry may run again", err)
				return
			}
		}
	})
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

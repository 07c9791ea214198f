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
	if errors.Is(err, store.ErrFenced) {
		return g.fenced(settleCtx, k)
	}
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
	case err != nil && !time.Now().Before(k.lease.until()):
		// Another attempt may have taken the key over, which a Release that failed does not tell.
		return g.fenced(settleCtx, k)
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
	k.found = found[0]
	return g.answer(ctx, k)
}

// completeBehind goes on trying to keep a leased attempt's reply after its caller was answered, until its lease ends.
func (g *Guard) completeBehind(ctx context.Context, k *keyed, attempt store.Attempt, record store.Record, first error) {
	g.tryBehind(ctx, k, first, settlement{
		failed: "idempotency: a reply could not be kept; trying again until the lease ends",
		late:   "idempotency: the lease ended before the attempt was settled; a retry may run again",
		level:  slog.LevelError,
		try:    func(ctx context.Context) error { return attempt.Complete(ctx, record, false) },
	})
}

// releaseBehind goes on trying to release a leased attempt's key, unless it is lost. A transactional one needs no more:
// what ends its connection ends its claim.
func (g *Guard) releaseBehind(ctx context.Context, k *keyed, attempt store.Attempt, first error) {
	if errors.Is(first, store.ErrFenced) {
		return
	}
	if g.store.Transactional() {
		g.logger.LogAttrs(ctx, slog.LevelWarn, "idempotency: a transaction could not be rolled back",
			slog.String("key_digest", k.digest()), slog.Any("error", first))
		return
	}
	s := settlement{
		failed: "idempotency: a key may not have been released; trying again until the lease ends",
		late:   "idempotency: the lease ended, and the key may not have been released; a retry takes it over",
		level:  slog.LevelWarn,
		try: func(ctx context.Context) error {
			err := attempt.Release(ctx)
			if errors.Is(err, store.ErrFenced) {
				return nil // an earlier try released the key, or it is another's: nothing is left to release
			}
			return err
		},
	}
	if k.policy.NoTakeOver {
		s.late = "idempotency: the lease ended, and the key may not have been released; unless it was, retries are refused until Forget"
		s.level = slog.LevelError
	}
	g.tryBehind(ctx, k, first, s)
}

// settlement is how a leased attempt is settled behind its caller's answer.
type settlement struct {
	failed string // is logged first
	late   string // is logged, at level, where the lease ends before
	level  slog.Level
	try    func(context.Context) error
}

func (g *Guard) tryBehind(ctx context.Context, k *keyed, first error, s settlement) {
	log := func(level slog.Level, text string, err error) {
		g.logger.LogAttrs(ctx, level, text, slog.String("procedure", k.Procedure),
			slog.String("key_digest", k.digest()), slog.Any("error", err))
	}
	log(slog.LevelWarn, s.failed, first)
	g.behind.Go(func() {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), k.lease.until())
		defer cancel()
		err := first
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			select {
			case <-ctx.Done():
				log(s.level, s.late, err)
				return
			case <-time.After(pause):
			}
			err = s.try(ctx)
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

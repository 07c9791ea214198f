package target

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// recorder is a store that writes down every call before it is made and after it has returned. What the contract makes
// optional, it hands on: the store within is always PostgreSQL's.
type recorder struct {
	*postgres.Store

	log *journal.Writer
}

var (
	_ store.Store   = (*recorder)(nil)
	_ store.Renewer = (*recorder)(nil)
	_ store.Drainer = (*recorder)(nil)
)

func (r *recorder) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	op := r.log.Invoke(journal.Event{Call: journal.Claim, Key: c.ID.Key, Token: tokenText(c.Token), Lease: int64(c.Lease)})
	found, attempt, err := r.Store.Claim(ctx, c)
	return found, r.claimed(op, c, found, attempt, err), err
}

func (r *recorder) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	op := r.log.Invoke(journal.Event{
		Call: journal.TakeOver, Key: c.ID.Key, Token: tokenText(c.Token), Seen: tokenText(seen), Lease: int64(c.Lease),
	})
	found, attempt, err := r.Store.TakeOver(ctx, c, seen)
	return found, r.claimed(op, c, found, attempt, err), err
}

// claimed writes down what came of a claim or take-over, and records what its attempt does from now on.
func (r *recorder) claimed(op uint64, c store.Claim, found store.Found, attempt store.Attempt, err error) store.Attempt {
	e := journal.Event{Kind: journal.Return, Op: op, Won: attempt != nil}
	if e.Result, e.Text = result(err); err == nil {
		e.Found = FoundOf(found)
	}
	r.log.Write(e)
	if attempt == nil {
		return nil
	}
	return &recordedAttempt{Attempt: attempt, recorder: r, key: c.ID.Key, token: tokenText(c.Token)}
}

func (r *recorder) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	ops := make([]uint64, len(ids))
	for i, id := range ids {
		ops[i] = r.log.Invoke(journal.Event{Call: journal.Look, Key: id.Key})
	}
	found, err := r.Store.Look(ctx, ids)
	for i, op := range ops {
		e := journal.Event{Kind: journal.Return, Op: op}
		if e.Result, e.Text = result(err); err == nil {
			e.Found = FoundOf(found[i])
		}
		r.log.Write(e)
	}
	return found, err
}

func (r *recorder) Renew(ctx context.Context, held []store.Held, lease time.Duration) ([]store.Token, error) {
	ops := make([]uint64, len(held))
	for i, h := range held {
		ops[i] = r.log.Invoke(journal.Event{Call: journal.Renew, Key: h.ID.Key, Token: tokenText(h.Token), Lease: int64(lease)})
	}
	lost, err := r.Store.Renew(ctx, held, lease)
	isLost := make(map[store.Token]bool, len(lost))
	for _, token := range lost {
		isLost[token] = true
	}
	for i, op := range ops {
		e := journal.Event{Kind: journal.Return, Op: op, Lost: isLost[held[i].Token]}
		e.Result, e.Text = result(err)
		r.log.Write(e)
	}
	return lost, err
}

// recordedAttempt is an attempt whose end is written down.
type recordedAttempt struct {
	store.Attempt

	recorder   *recorder
	key, token string
}

func (a *recordedAttempt) Context(ctx context.Context) context.Context {
	return context.WithValue(a.Attempt.Context(ctx), tokenKey{}, a.token)
}

func (a *recordedAttempt) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	return a.recorded(journal.Event{Call: journal.Complete, Reply: digest(r.Reply)},
		func() error { return a.Attempt.Complete(ctx, r, keepWrites) })
}

func (a *recordedAttempt) Release(ctx context.Context) error {
	return a.recorded(journal.Event{Call: journal.Release}, func() error { return a.Attempt.Release(ctx) })
}

func (a *recordedAttempt) recorded(e journal.Event, call func() error) error {
	e.Key, e.Token = a.key, a.token
	op := a.recorder.log.Invoke(e)
	err := call()
	returned := journal.Event{Kind: journal.Return, Op: op}
	returned.Result, returned.Text = result(err)
	a.recorder.log.Write(returned)
	return err
}

type tokenKey struct{}

// tokenFrom returns the token of the attempt that a handler runs under.
func tokenFrom(ctx context.Context) (string, bool) {
	token, ok := ctx.Value(tokenKey{}).(string)
	return token, ok
}

func result(err error) (r journal.Result, text string) {
	switch {
	case err == nil:
		return journal.OK, ""
	case errors.Is(err, store.ErrFenced):
		return journal.Fenced, err.Error()
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrRejected):
		return journal.Rejected, err.Error()
	default:
		return journal.Unknown, err.Error()
	}
}

// FoundOf is what a journal says of what a call found.
func FoundOf(f store.Found) *journal.Found {
	j := &journal.Found{State: f.State, Attempt: f.Attempt, LeaseLeft: int64(f.LeaseLeft)}
	if !f.Token.IsZero() {
		j.Token = tokenText(f.Token)
	}
	if f.State == store.Completed {
		j.Reply = digest(f.Record.Reply)
	}
	return j
}

func tokenText(t store.Token) string { return fmt.Sprintf("%x", t[:]) }

// digest names a stored reply in a journal.
func digest(reply []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(reply) // never fails: see hash.Hash
	return fmt.Sprintf("%x", h.Sum64())
}

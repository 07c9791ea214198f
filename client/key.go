package client

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/google/uuid"
)

// Errors of a call that was not sent, for errors.Is; see [NotSentError].
var (
	// ErrKeyUsed: the context's key, or its [WithoutKey], was for one call, and an earlier call has used it.
	ErrKeyUsed = errors.New("the context's key was for one call, and that call has been made; bring the key again for another")
	// ErrKeyConflict: the call's metadata and [WithKey] bring different keys.
	ErrKeyConflict = errors.New("the metadata and the context bring different keys")
	// ErrKeyInvalid: the key is none by the rules of [idempotency.ParseKey].
	ErrKeyInvalid = errors.New("the key is not valid")
	// ErrNoKey: the function given to [WithKeyMaker] failed.
	ErrNoKey = errors.New("no key could be made")
)

// NewKey returns a new key: a UUID of version 7 (RFC 9562), 36 characters, with 74 random bits behind the time in
// milliseconds, so that keys made one after the other lie next to each other in the server's index. Safe for concurrent
// use. It panics where the source that the program gave to uuid.SetRand fails; the default one never does.
func NewKey() string { return uuid.Must(uuid.NewV7()).String() }

// WithKey returns a context that brings a key, an order number for example, to one call: the first unary call that is made
// with it, or with a context derived from it, through an interceptor over a [Retrier]. All attempts of that call carry the
// key. Every later call with the context is not sent and fails with [ErrKeyUsed], which is better than sharing a key or
// silently making another. To go on with the same operation after the call has failed, bring the key again: WithKey(ctx,
// key).
//
// What runs within the call, inner interceptors and a handler in the same process, does not see the key; the calls it makes
// get keys of their own. Calls to procedures marked NO_SIDE_EFFECTS, and streams, neither send the key nor use it up. A key
// that [idempotency.ParseKey] refuses, the empty one too, fails the call with [ErrKeyInvalid]; one that differs from a key
// in the call's metadata fails it with [ErrKeyConflict].
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, ticketKey{}, &ticket{key: key})
}

// WithoutKey returns a context that turns the interceptor off for one call, in the sense of [WithKey]: no key is made, the
// metadata goes out as the caller made it, and nothing is retried.
func WithoutKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, ticketKey{}, &ticket{off: true})
}

// WithNewKeys returns a context whose calls get keys of their own, whatever [WithKey] or [WithoutKey] said before. It is
// ctx itself where neither did.
func WithNewKeys(ctx context.Context) context.Context {
	if ticketOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, ticketKey{}, (*ticket)(nil))
}

type ticketKey struct{}

// ticket is what a context brings to one call.
type ticket struct {
	key  string
	off  bool
	used atomic.Bool
}

// ticketOf returns the context's ticket, nil where it has none.
func ticketOf(ctx context.Context) *ticket {
	t, _ := ctx.Value(ticketKey{}).(*ticket)
	return t
}

package client

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// Retrier gives logical calls their keys and sends them again. It is safe for concurrent use, keeps no state of a call, and
// may serve any number of clients.
type Retrier struct {
	header                     string
	maxAttempts                int
	maxElapsed                 time.Duration
	initialBackoff, maxBackoff time.Duration
	newKey                     func() (string, error)
	keyed                      func(procedure string) bool
}

// New makes a Retrier. Without options each call that may have side effects gets a key, and is sent at most
// [DefaultMaxAttempts] times within [DefaultMaxElapsed]. It fails where an option's comment says so.
func New(opts ...Option) (*Retrier, error) {
	r := defaults()
	for _, opt := range opts {
		opt(r)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// Header is the metadata that carries the key, in lower case.
func (r *Retrier) Header() string { return r.header }

// Call is what an adapter says of a logical unary call.
type Call struct {
	// Procedure is the full name, such as "/charges.v1.ChargeService/CreateCharge".
	Procedure string
	// NoSideEffects says that the procedure's idempotency_level is NO_SIDE_EFFECTS: it passes by.
	NoSideEffects bool
	// Keys are the values that the caller has put under [Retrier.Header]. They go out as they are, and the server judges
	// them.
	Keys []string
}

// NotSentError says why a call was not sent at all. It is one of ErrKeyUsed, ErrKeyConflict, ErrKeyInvalid and ErrNoKey
// for errors.Is.
type NotSentError struct {
	// Code is what the adapter's own error has for a code: InvalidArgument where it is the caller's key, Internal where a
	// key could not be made.
	Code code.Code
	// Err is why.
	Err error
}

// Error returns why.
func (e *NotSentError) Error() string { return "idempotency: the call was not sent: " + e.Err.Error() }

// Unwrap returns why.
func (e *NotSentError) Unwrap() error { return e.Err }

// Do makes one logical call: it calls send for each attempt, one after the other, at least once unless Do fails. What the
// last attempt gave, message or error, is the call's answer; the adapter keeps it.
//
// Send sends the call once. Where key is not empty it goes into the attempt's metadata, and only there: not into what
// belongs to the caller. Where it is empty, the caller's metadata goes out as it is. Attempts start from the same message
// and metadata: nothing that an earlier one added is left. Send returns nil for success, and never keeps its context,
// which hides the caller's [WithKey].
//
// When ctx ends while Do waits it returns at once, and the last attempt's error is the answer; ctx.Err tells the rest.
//
// The error is a [*NotSentError], and nil wherever send was called.
func (r *Retrier) Do(ctx context.Context, c Call, send func(ctx context.Context, key string) *Failure) error {
	brought := ticketOf(ctx)
	ctx = WithNewKeys(ctx)
	if c.NoSideEffects {
		send(ctx, "")
		return nil
	}
	key, keyed, err := r.key(c, brought)
	if err != nil {
		return err
	}
	attempt := func() *Failure { return send(ctx, key) }
	if !keyed {
		attempt()
		return nil
	}
	r.attempts(ctx, attempt)
	return nil
}

// key settles the key that the attempts are given, "" where the metadata goes out as it is, and whether the call has one.
func (r *Retrier) key(c Call, brought *ticket) (key string, keyed bool, err error) {
	switch {
	case brought != nil && !brought.used.CompareAndSwap(false, true):
		return "", false, &NotSentError{Code: code.Code_INVALID_ARGUMENT, Err: ErrKeyUsed}
	case brought != nil && brought.off:
		return "", false, nil
	case brought != nil:
		return broughtKey(c, brought.key)
	case len(c.Keys) > 0:
		return "", true, nil
	case !r.keyed(c.Procedure):
		return "", false, nil
	}
	if key, err = r.newKey(); err != nil {
		return "", false, &NotSentError{Code: code.Code_INTERNAL, Err: fmt.Errorf("%w: %w", ErrNoKey, err)}
	}
	if _, err := idempotency.ParseKey(key); err != nil {
		return "", false, &NotSentError{Code: code.Code_INTERNAL, Err: fmt.Errorf("%w: %w", ErrKeyInvalid, err)}
	}
	return key, true, nil
}

func broughtKey(c Call, key string) (string, bool, error) {
	brought, err := idempotency.ParseKey(key)
	if err != nil {
		return "", false, &NotSentError{Code: code.Code_INVALID_ARGUMENT, Err: fmt.Errorf("%w: %w", ErrKeyInvalid, err)}
	}
	if len(c.Keys) == 0 {
		return key, true, nil
	}
	for _, value := range c.Keys {
		if own, err := idempotency.ParseKey(value); err != nil || own != brought {
			return "", false, &NotSentError{Code: code.Code_INVALID_ARGUMENT, Err: ErrKeyConflict}
		}
	}
	return "", true, nil
}

// attempts sends a call that has a key until it has its answer.
func (r *Retrier) attempts(ctx context.Context, attempt func() *Failure) {
	begin := time.Now()
	pause := backoff.ExponentialBackOff{
		InitialInterval: r.initialBackoff, MaxInterval: r.maxBackoff, Multiplier: 2, RandomizationFactor: 0.5,
	}
	for sent := 1; ; sent++ {
		failure := attempt()
		if failure == nil || sent == r.maxAttempts {
			return
		}
		asked, again := failure.asked(time.Now())
		if !again {
			return
		}
		wait := addSaturated(asked, pause.NextBackOff())
		if addSaturated(time.Since(begin), wait) > r.maxElapsed || !sleep(ctx, wait) {
			return
		}
	}
}

// addSaturated adds two durations that are not negative.
func addSaturated(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}

// sleep waits, and reports whether it has: not where ctx has ended, ends before, or would.
func sleep(ctx context.Context, wait time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

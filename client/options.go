package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// Defaults of a [Retrier]'s options.
const (
	// DefaultMaxAttempts is how often a call is sent at the most.
	DefaultMaxAttempts = 8
	// DefaultMaxElapsed is how long after a call's begin its last retry may begin.
	DefaultMaxElapsed = 30 * time.Second
	// DefaultInitialBackoff is the mean wait before the first retry.
	DefaultInitialBackoff = 200 * time.Millisecond
	// DefaultMaxBackoff is the longest mean wait.
	DefaultMaxBackoff = 5 * time.Second
)

// Option configures a [Retrier].
type Option func(*Retrier)

// WithMaxAttempts sets how often a call is sent at the most, the first time included. Default [DefaultMaxAttempts]. One is
// not to retry; zero and less are errors of New: there is always a bound.
func WithMaxAttempts(n int) Option { return func(r *Retrier) { r.maxAttempts = n } }

// WithoutRetries sends each call once; it still gets a key. It is WithMaxAttempts(1).
func WithoutRetries() Option { return WithMaxAttempts(1) }

// WithMaxElapsed sets how long after the call's begin a retry may begin. It does not cut off an attempt that runs; the
// caller's deadline does. Default [DefaultMaxElapsed]. Zero and less are errors of New: there is always a bound.
func WithMaxElapsed(d time.Duration) Option { return func(r *Retrier) { r.maxElapsed = d } }

// WithBackoff sets the mean wait before the first retry, which doubles with each further one up to the longest. Each
// wait is drawn evenly from half of its mean to one and a half of it. Defaults [DefaultInitialBackoff] and
// [DefaultMaxBackoff]. New fails where the first is not more than zero, or the second is less than the first or more than
// a day.
func WithBackoff(initial, longest time.Duration) Option {
	return func(r *Retrier) { r.initialBackoff, r.maxBackoff = initial, longest }
}

// WithKeyMaker sets what makes a key for each call that brings none. Default [NewKey]. It is called concurrently, once a
// logical call, and must never return the same key twice. Where it fails, or returns what [idempotency.ParseKey] refuses,
// the call is not sent. A nil function is an error of New.
func WithKeyMaker(newKey func() (string, error)) Option {
	return func(r *Retrier) { r.newKey = newKey }
}

// WithProcedures says which procedures are given keys, and so are retried; of the others only calls that bring a key of
// their own are. Default: all that are not marked NO_SIDE_EFFECTS, which never are. A procedure is written
// "/charges.v1.ChargeService/CreateCharge". The function is called concurrently, once a logical call that brings no key. A
// nil function is an error of New.
func WithProcedures(keyed func(procedure string) bool) Option {
	return func(r *Retrier) { r.keyed = keyed }
}

// WithHeader sets the metadata that carries the key; it must be the one of the server's guard. Default
// [idempotency.DefaultHeader]. Upper and lower case are the same. New fails where the name is empty, has characters that
// gRPC's metadata cannot carry, ends in "-bin", or begins with "grpc-" or "connect-".
func WithHeader(name string) Option {
	return func(r *Retrier) { r.header = strings.ToLower(name) }
}

func (r *Retrier) check() error {
	switch {
	case r.maxAttempts < 1:
		return fmt.Errorf("client: %d attempts; at least one is needed", r.maxAttempts)
	case r.maxElapsed <= 0:
		return fmt.Errorf("client: the time for retries is %v, and must be more than zero", r.maxElapsed)
	case r.initialBackoff <= 0 || r.maxBackoff < r.initialBackoff || r.maxBackoff > 24*time.Hour:
		return fmt.Errorf("client: the backoff goes from %v to %v; it must begin above zero, and end between its begin and 24h",
			r.initialBackoff, r.maxBackoff)
	case r.newKey == nil:
		return errors.New("client: WithKeyMaker needs a function")
	case r.keyed == nil:
		return errors.New("client: WithProcedures needs a function")
	}
	return checkHeader(r.header)
}

func checkHeader(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	switch {
	case name == "":
		return errors.New("client: the metadata that carries the key needs a name")
	case strings.Trim(name, allowed) != "":
		return fmt.Errorf("client: metadata cannot be named %q", name)
	case strings.HasSuffix(name, "-bin"), strings.HasPrefix(name, "grpc-"), strings.HasPrefix(name, "connect-"):
		return fmt.Errorf("client: the name %q belongs to the protocols", name)
	}
	return nil
}

// defaults is a Retrier to which no option was given.
func defaults() *Retrier {
	return &Retrier{
		header:         idempotency.DefaultHeader,
		maxAttempts:    DefaultMaxAttempts,
		maxElapsed:     DefaultMaxElapsed,
		initialBackoff: DefaultInitialBackoff,
		maxBackoff:     DefaultMaxBackoff,
		newKey:         func() (string, error) { return NewKey(), nil },
		keyed:          func(string) bool { return true },
	}
}

package idempotency

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
)

// Defaults of a [Guard]'s options.
const (
	// DefaultTTL is how long a key is remembered.
	DefaultTTL = 24 * time.Hour
	// DefaultLease is how long a claim is good for.
	DefaultLease = 30 * time.Second
	// DefaultRunLimit is how long a handler runs on that does not end with its client.
	DefaultRunLimit = 5 * time.Minute
	// DefaultMaxWaiters is how many calls of a process wait at the most.
	DefaultMaxWaiters = 1000
	// DefaultMaxReplySize is the size of the largest reply that is kept, in bytes.
	DefaultMaxReplySize = 1 << 20
)

// Option configures a [Guard].
type Option func(*Guard)

// WithScope settles whom a key belongs to. Required, unless [WithSingleScope] is given. A nil function is an error of New.
func WithScope(scope ScopeFunc) Option { return func(g *Guard) { g.scope = scope } }

// WithSingleScope says that all callers of this server share one scope, the empty one: whoever sends a key and the same
// request gets the reply. Right only where all callers trust each other, or where keys cannot be guessed and are never
// shared.
func WithSingleScope() Option { return WithScope(singleScope) }

// WithTTL sets how long a key is remembered, counted from its claim. Default [DefaultTTL]. At least two leases.
func WithTTL(ttl time.Duration) Option { return func(g *Guard) { g.policy.TTL = ttl } }

// WithLease sets how long a claim is good for. Default [DefaultLease]. At least one millisecond. On a leased store it is
// renewed every third of it while the handler runs; the handler's context ends when a tenth of it is left, which happens
// only where renewing fails or is off. On a transactional store it is how long a transaction may last.
func WithLease(lease time.Duration) Option { return func(g *Guard) { g.policy.Lease = lease } }

// WithoutRenewal leaves leases as they are: a leased handler has to end within its own. Where it ends with its call (see
// [WithAttached]) and the call has a deadline, the lease is no longer than that needs.
func WithoutRenewal() Option { return func(g *Guard) { g.policy.NoRenewal = true } }

// WithAttached has the handler's context end when the caller's does. That is the default on a transactional store.
func WithAttached() Option { return func(g *Guard) { g.policy.Detached = false } }

// WithDetached has the handler run on when its caller has gone, for at most limit counted from its start, so that a retry
// finds its reply. That is the default on a leased store, with [DefaultRunLimit]. Zero is no limit but that of the lease;
// less than zero is an error of New.
func WithDetached(limit time.Duration) Option {
	return func(g *Guard) { g.policy.Detached, g.policy.RunLimit = true, limit }
}

// WithWaiting has a call that meets its key in progress wait for the first call to end, for at most limit, and then replays
// its reply; if the first call is released, one of those who wait runs. Past the limit, or past [WithMaxWaiters], the answer
// is "in progress" as without it. A call that waits holds no connection: one poller per process looks for all of them, in
// one query, every 20 to 500 milliseconds, and at once where the first call runs in this process. A call that comes while
// the same request is claimed, run or waited for in this process sends nothing of its own. Zero, the default, is not to wait;
// less than zero is an error of New.
func WithWaiting(limit time.Duration) Option { return func(g *Guard) { g.policy.Wait = limit } }

// WithMaxWaiters sets how many calls of this process may wait at the same time. Default [DefaultMaxWaiters]. Zero means
// that none may; less than zero is an error of New.
func WithMaxWaiters(n int) Option { return func(g *Guard) { g.maxWaiters = n } }

// WithConflictRetries has the guard run a transactional handler again, at most n times a call, when its transaction met a
// conflict (SQLSTATE 40001 or 40P01): nothing was done then. By default, and where n is zero, the client is told so
// ([ReasonTxConflict]). Less than zero is an error of New.
func WithConflictRetries(n int) Option { return func(g *Guard) { g.policy.ConflictRetries = n } }

// WithKeyRequired refuses calls without a key. By default they run unguarded.
func WithKeyRequired() Option { return func(g *Guard) { g.policy.KeyRequired = true } }

// WithoutTakeOver refuses a key whose owner's lease is over as [ReasonOutcomeUnknown], until an operator calls
// [Guard.Forget] or the key's TTL is over. By default the next call with the same request takes the key over, and runs.
func WithoutTakeOver() Option { return func(g *Guard) { g.policy.NoTakeOver = true } }

// Policy is what may differ by procedure. The zero value of a duration is not valid: change what you were given.
type Policy struct {
	// Off lets the procedure pass by, with or without a key.
	Off bool
	// KeyRequired refuses calls without a key.
	KeyRequired bool
	// NoTakeOver refuses a key whose owner's lease is over.
	NoTakeOver bool
	// NoRenewal leaves leases as they are.
	NoRenewal bool
	// Detached has a handler run on when its caller has gone, for at most RunLimit; zero is no limit.
	Detached bool
	RunLimit time.Duration
	// Wait is how long a call waits for the first one with its key to end; zero is not to wait.
	Wait time.Duration
	// ConflictRetries is how often a transactional handler runs again after a conflict.
	ConflictRetries int
	// TTL is how long a key is remembered: at least two leases.
	TTL time.Duration
	// Lease is how long a claim is good for.
	Lease time.Duration
}

func (p Policy) check() error {
	if p.Lease < time.Millisecond {
		return fmt.Errorf("the lease is %v, and must be at least 1ms", p.Lease)
	}
	if p.RunLimit < 0 {
		return fmt.Errorf("the limit of a handler that runs on is %v, and cannot be less than zero", p.RunLimit)
	}
	if p.Wait < 0 || p.ConflictRetries < 0 {
		return fmt.Errorf("the limit of waiting is %v and that of retries after a conflict %d, and neither can be less than zero",
			p.Wait, p.ConflictRetries)
	}
	if p.TTL/2 < p.Lease { // the other way round it would overflow
		return fmt.Errorf("the TTL is %v, and must be at least two leases of %v", p.TTL, p.Lease)
	}
	return nil
}

// WithPolicy sets a function that changes the guard's policy for a call; p holds what the other options say. It is called
// once for every [Guard.Do] and every [Guard.PassesBy], concurrently, before the key is read, unless the procedure has no
// side effects. A policy that is not valid refuses a call that does not pass by, as [ReasonMisconfigured]. A nil function
// changes nothing.
func WithPolicy(policy func(c Call, p Policy) Policy) Option {
	return func(g *Guard) { g.policyFor = policy }
}

// WithKeep replaces the rule that says which replies are kept. It is asked with the reply as the client will see it; false
// releases the key, so that a retry runs, and so does a panic, which goes on up. A nil function is an error of New.
// Default [Keep].
func WithKeep(keep func(ctx context.Context, c Call, r Reply) bool) Option {
	return func(g *Guard) { g.keep = keep }
}

// Keep is the default rule: success, and the errors that are the answer to the request (InvalidArgument, NotFound,
// AlreadyExists, PermissionDenied, FailedPrecondition, OutOfRange). All others may go away by themselves.
func Keep(_ context.Context, _ Call, r Reply) bool {
	switch r.Code() {
	case code.Code_OK, code.Code_INVALID_ARGUMENT, code.Code_NOT_FOUND, code.Code_ALREADY_EXISTS,
		code.Code_PERMISSION_DENIED, code.Code_FAILED_PRECONDITION, code.Code_OUT_OF_RANGE:
		return true
	default:
		return false
	}
}

// WithMaxReplySize sets the size of the largest reply that is kept: proto.Size of a message, or of an error with its
// details, in bytes; header and trailer do not count. Default [DefaultMaxReplySize]. A larger reply reaches the first
// caller, and a retry is refused as [ReasonReplyNotKept]. Zero keeps only empty messages; less is an error of New.
func WithMaxReplySize(bytes int) Option { return func(g *Guard) { g.maxReply = bytes } }

// WithoutMetadata names metadata that is not kept, and so not replayed, beyond what never is (see [Metadata]): cookies,
// credentials, hop-by-hop and protocol headers. Upper and lower case are the same. May be given more than once.
func WithoutMetadata(names ...string) Option {
	return func(g *Guard) {
		for _, name := range names {
			g.unkept[strings.ToLower(name)] = true
		}
	}
}

// WithHeader sets the metadata that carries the key. Default [DefaultHeader]. An empty name is an error of New.
func WithHeader(name string) Option { return func(g *Guard) { g.header = name } }

// WithObserver adds an observer. May be given more than once; they are called in order. A nil function is an error of New.
func WithObserver(o Observer) Option {
	return func(g *Guard) { g.observers = append(g.observers, o) }
}

// WithLogger sets where the guard says what went wrong behind an answer, and what an operator must look at. Default, and
// where nil, slog.Default(). No key and no reply stands in a log.
func WithLogger(logger *slog.Logger) Option { return func(g *Guard) { g.logger = logger } }

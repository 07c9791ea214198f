package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/connect-idempotency/connect-idempotency-go/internal/behind"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Guard runs a call once per key. It is safe for concurrent use.
type Guard struct {
	store     store.Store
	scope     ScopeFunc
	policy    Policy
	policyFor func(Call, Policy) Policy
	keep      func(context.Context, Call, Reply) bool
	maxReply  int
	unkept    map[string]bool
	header    string
	keyField  protoreflect.Name
	validKey  func(key string) error
	mayReplay func(context.Context, Call, Reply) error
	// definitions make fingerprints: the first writes them, all compare them.
	definitions []definition
	ignored     ignoredFields
	sealer      *sealer // nil where replies are stored in the clear
	acceptClear bool    // replies that were stored in the clear are replayed all the same
	faults      []error // of options, for New
	maxWaiters  int
	room        *waitRoom

	mu        sync.Mutex
	renewers  map[time.Duration]*renewer // by the length of their leases
	observers []Observer
	logger    *slog.Logger
	behind    behind.Group
}

// New makes a guard over a store. It fails unless the scope is settled, by [WithScope] or [WithSingleScope], and where an
// option's value is not valid.
func New(s store.Store, opts ...Option) (*Guard, error) {
	g := &Guard{
		store:       s,
		policy:      Policy{TTL: DefaultTTL, Lease: DefaultLease, RunLimit: DefaultRunLimit},
		renewers:    make(map[time.Duration]*renewer),
		maxWaiters:  DefaultMaxWaiters,
		keep:        Keep,
		maxReply:    DefaultMaxReplySize,
		unkept:      neverKept(),
		ignored:     make(ignoredFields),
		definitions: []definition{plainV1()},
		header:      DefaultHeader,
	}
	if s != nil {
		g.policy.Detached = !s.Transactional()
	}
	for _, opt := range opts {
		opt(g)
	}
	if g.logger == nil {
		g.logger = slog.Default()
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	g.room = newWaitRoom(g, g.maxWaiters)
	return g, nil
}

// Header is the metadata in which the key is sent. Adapters read it into [Call.Keys].
func (g *Guard) Header() string { return g.header }

// PassesBy reports whether Do would do nothing but run the call: the procedure has no side effects, its policy is off, or
// no key was sent and none is required. An adapter may ask before it prepares a call.
func (g *Guard) PassesBy(c Call) bool {
	return c.NoSideEffects || g.passesBy(c, g.policyOf(c))
}

// PassesByUnread is PassesBy for an adapter that has yet to read the request. False says that it depends on the request, or
// that the call is guarded.
func (g *Guard) PassesByUnread(c Call) bool {
	return g.policyFor == nil && g.keyField == "" && g.PassesBy(c)
}

func (g *Guard) passesBy(c Call, p Policy) bool {
	return p.Off || len(c.Keys) == 0 && !p.KeyRequired && g.fieldKey(c.Request) == ""
}

func (g *Guard) policyOf(c Call) Policy {
	if g.policyFor == nil {
		return g.policy
	}
	return g.policyFor(c, g.policy)
}

// Do guards one call. Where the call is the key's to run, it calls run, once (see [WithConflictRetries]), and returns run's reply with
// replayed false; the caller may hand on the handler's own value then. Where an earlier call's reply is kept, it returns
// that with replayed true. In all other cases the caller gets err, which is always an [*Error] to be sent as it is, and
// never the reply.
//
// The context that run gets holds what [FromContext] reads, and for a transactional store the transaction. It ends, with
// one of the causes [ErrLeaseEnding], [ErrLeaseLost] and [ErrRunLimit], when the attempt may no longer go on; on a leased
// store it does not end when ctx does, so that a client that goes away does not lose the reply (see [WithAttached],
// [WithDetached]). A panic in run releases the key and goes on up.
func (g *Guard) Do(ctx context.Context, c Call, run func(context.Context) Reply) (r Reply, replayed bool, err error) {
	if c.NoSideEffects {
		return run(ctx), false, nil
	}
	policy := g.policyOf(c) // asked once: it may answer otherwise the next time
	if g.passesBy(c, policy) {
		return run(ctx), false, nil
	}
	k := &keyed{Call: c, start: time.Now(), policy: policy}
	if err := g.prepare(ctx, k); err != nil {
		return g.refuse(ctx, k, refusedAs(err), err)
	}
	g.behind.Begin() // a leased call runs on when its client, and with it the server's count of it, is gone
	defer g.behind.End()
	for {
		r, replayed, err = g.once(ctx, k, run)
		if !errors.Is(err, errRunAgain) {
			return r, replayed, err
		}
	}
}

// once goes through the flow from the claim on.
func (g *Guard) once(ctx context.Context, k *keyed, run func(context.Context) Reply) (Reply, bool, error) {
	if k.policy.Wait > 0 {
		defer g.room.depart(k)
	}
	attempt, err := g.claimOrWait(ctx, k)
	if err != nil {
		return g.refuse(ctx, k, Failed, err)
	}
	if attempt == nil {
		return g.answer(ctx, k)
	}
	runCtx, stop := g.runContext(ctx, k)
	defer stop()
	return g.settle(ctx, k, attempt, g.run(ctx, runCtx, k, attempt, run))
}

// keyed is a call on its way through the flow.
type keyed struct {
	Call
	start       time.Time
	policy      Policy
	scope, key  string
	id          store.ID
	fingerprint string
	found       store.Found // what the store said of the key last
	attempt     int         // the attempt's number, once the key is won
	token       store.Token // of the claim that was sent last
	sent        time.Time   // when it was sent
	lease       *lease      // once the key is won
	conflicts   int         // that made the handler run again
}

// prepare checks the policy, and reads the key, the scope and the fingerprint. Nothing is sent to the store.
func (g *Guard) prepare(ctx context.Context, k *keyed) (err error) {
	if err := k.policy.check(); err != nil {
		return misconfigured(err, "the procedure's policy is not valid")
	}
	if k.key, err = g.key(k.Call, k.policy.KeyRequired); err != nil {
		return err
	}
	if k.scope, err = g.scopeOf(ctx, k.Call); err != nil {
		return err
	}
	k.id = store.ID{Scope: storedScope(k.scope), Key: k.key}
	if err := g.fitDeadline(ctx, &k.policy); err != nil {
		return err
	}
	if k.fingerprint, err = g.fingerprint(k.Call); err != nil {
		return misconfigured(err, "the request's fingerprint could not be made")
	}
	return nil
}

// digest names the key in logs.
func (k *keyed) digest() string {
	if k.id == (store.ID{}) {
		return ""
	}
	sum := sha256.Sum256([]byte(k.id.Scope + "\x00" + k.id.Key))
	return hex.EncodeToString(sum[:6])
}

// Forget frees a key, whatever its state, and reports whether there was one: for an operator who knows what became of it.
// Scope is what the [ScopeFunc] returned, key what [ParseKey] made of the metadata. An attempt that still runs can no
// longer settle. It fails where the store does.
func (g *Guard) Forget(ctx context.Context, scope, key string) (bool, error) {
	return g.store.Forget(ctx, store.ID{Scope: storedScope(scope), Key: key})
}

// Close waits until no call that the guard holds a claim for is running, and nothing of the guard's or its store's goes on
// behind an answer: completions that are tried again, rollbacks. Call it once the server takes no more calls, and before
// the store's pool is closed: http.Server.Shutdown does not wait for a call whose client has reset its HTTP/2 stream, which
// a leased call outlives. It fails only where ctx ends first.
func (g *Guard) Close(ctx context.Context) error {
	err := g.behind.Wait(ctx)
	if d, ok := g.store.(store.Drainer); ok {
		err = errors.Join(err, d.Drain(ctx))
	}
	return err
}

// refusedAs tells a fault of the client's from one of the server's.
func refusedAs(err error) Outcome {
	switch ReasonOf(err) {
	case ReasonKeyRequired, ReasonKeyInvalid:
		return Invalid
	default:
		return Failed
	}
}

// refuse ends a call with an error of the guard's own.
func (g *Guard) refuse(ctx context.Context, k *keyed, o Outcome, err error) (Reply, bool, error) {
	g.observe(ctx, k, Event{Outcome: o, Err: err})
	return Reply{}, false, err
}

func (g *Guard) observe(ctx context.Context, k *keyed, e Event) {
	if len(g.observers) == 0 {
		return
	}
	e.Procedure, e.Duration, e.KeyDigest, e.Attempt = k.Procedure, time.Since(k.start), k.digest(), k.attempt
	for _, o := range g.observers {
		o(ctx, e)
	}
}

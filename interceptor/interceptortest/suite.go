// Package interceptortest holds the scenarios that every adapter passes, whatever server it is for: first call, replay,
// refusals, waiting, a panic, a client that leaves, errors with details, metadata, limits.
//
// Whoever writes an adapter of their own serves the charges service (charges.v1) with it, says how in a [Serve], and calls
// [Run] from a test, once per protocol and store; [Across] holds two adapters against each other over one store.
package interceptortest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Handler is what CreateCharge does. The adapter's server answers as the reply says, in its own way: the message or the
// error, with header, trailer, and the error's details; values of names that end in "-bin" are in base64 in the reply. A
// panic is a panic of the server's handler.
type Handler func(ctx context.Context, req *chargesv1.CreateChargeRequest) idempotency.Reply

// Serve starts a server of charges.v1.ChargeService that is guarded by g, whose CreateCharge is create, and whose
// ListCharges sends one charge. It returns a client of it. Both end with t. The server outlives a panic of its handler, and
// the client sees an error then.
type Serve func(t *testing.T, g *idempotency.Guard, create Handler) Client

// Client calls a server. It is used by many goroutines at once.
type Client interface {
	// Create calls CreateCharge with the keys as so many values of the metadata "idempotency-key".
	Create(ctx context.Context, keys []string, req *chargesv1.CreateChargeRequest) Answer
	// List calls ListCharges, and returns how many charges came.
	List(ctx context.Context, keys []string) (int, error)
}

// Answer is what a client sees of a call.
type Answer struct {
	// Message is nil where Error is not.
	Message *chargesv1.CreateChargeResponse
	// Error is code, message and details; its Metadata does not count.
	Error *idempotency.Error
	// Metadata is all that came beside the message or the error, header and trailer in one, since protocols carry the same
	// metadata in different places. Names in lower case; values of names that end in "-bin" in base64, padded or not.
	Metadata idempotency.Metadata
}

// Config is what Run needs.
type Config struct {
	Serve Serve
	// Store makes an empty store, which ends with t.
	Store func(t *testing.T) store.Store
	// InProcess says that a client that leaves gets its answer only once the handler has ended.
	InProcess bool
}

// Scenario is one behaviour.
type Scenario struct {
	Name string
	run  func(*bench)
	opts []idempotency.Option
}

// Scenarios are all, in the order in which Run runs them.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "first call", run: firstCall},
		{Name: "replay", run: replay},
		{Name: "reused key", run: reused},
		{Name: "in progress", run: inProgress},
		{Name: "waiting", run: waiting, opts: []idempotency.Option{idempotency.WithWaiting(time.Minute)}},
		{Name: "released, runs again", run: released},
		{Name: "panic", run: panics},
		{Name: "client gone", run: clientGone},
		{Name: "error with details", run: errorWithDetails},
		{Name: "header and trailer", run: headerAndTrailer},
		{Name: "an error's metadata", run: errorMetadata},
		{Name: "size limit", run: sizeLimit, opts: []idempotency.Option{idempotency.WithMaxReplySize(100)}},
		{Name: "key rules", run: keyRules, opts: []idempotency.Option{idempotency.WithKeyRequired()}},
		{Name: "no key", run: noKey},
		{Name: "streaming passes by", run: streaming},
	}
}

// Run runs every scenario, each a subtest of its own with a store and a server of its own.
func Run(t *testing.T, c Config) {
	t.Helper()
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) { s.Run(t, c) })
	}
}

// Run runs one scenario.
func (s Scenario) Run(t *testing.T, c Config) {
	t.Helper()
	b := newBench(t, c.Store(t), s.opts...)
	b.client, b.inProcess = c.Serve(t, b.guard, b.create), c.InProcess
	s.run(b)
}

// Across makes calls by one server and client, and retries them by another over the same store: what is replayed is what
// was told first, whichever adapter and protocol either of them uses.
func Across(t *testing.T, newStore func(t *testing.T) store.Store, first, retry Serve) {
	t.Helper()
	b := newBench(t, newStore(t))
	firstClient, retryClient := first(t, b.guard, b.create), retry(t, b.guard, b.create)
	for key, reply := range map[string]idempotency.Reply{
		"message":          charged("ch_1"),
		"message-metadata": withMetadata(charged("ch_2")),
		"error":            {Error: &idempotency.Error{Code: code.Code_NOT_FOUND, Message: "no such card"}},
		"error-metadata":   withMetadata(declined(t)),
	} {
		b.answer(reply)
		b.client = firstClient
		told := b.call(key)
		b.requireFresh(told)
		b.requireSame(told, answerOf(reply))
		b.client = retryClient
		b.requireReplay(b.call(key), told)
	}
}

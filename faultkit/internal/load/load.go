// Package load is the clients: each calls with a key, and again with the same key, until it has an answer.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
)

// Request is what is asked for under a key.
type Request struct {
	Key, Card string
	Amount    int64
}

// Answer is what a client takes for the end of its call: a charge, or an error that is kept.
type Answer struct {
	Key        string
	Charge     string // the run that it came from
	Declined   bool
	Replayed   bool
	Start, End int64 // journal.Now
}

// Log is what the clients saw.
type Log struct {
	Requests  map[string]Request // by key, all that were sent
	Answers   map[string][]Answer
	Attempts  map[string]int // calls by how they ended
	Wrong     []string       // what must not be answered
	Abandoned []string       // keys whose calls had no answer when their time was over
}

// Load is clients at work. It is safe for concurrent use.
type Load struct {
	addrs    []func() string // where each server is at the moment
	clients  []*http.Client  // by protocol
	options  [][]connect.ClientOption
	prefix   string
	patience time.Duration // with most calls
	keys     atomic.Int64
	workers  sync.WaitGroup

	calls, answers, replays atomic.Int64

	mu   sync.Mutex
	log  Log
	done []Request // answered, to be asked for again
}

// New makes clients for the servers at addrs. Prefix stands before each key; patience is how long most calls may take.
func New(prefix string, patience time.Duration, addrs []func() string) *Load {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h1 := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	h2 := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	return &Load{
		addrs:    addrs,
		prefix:   prefix,
		patience: patience,
		clients:  []*http.Client{h1, h1, h2, h2},
		options:  [][]connect.ClientOption{nil, {connect.WithProtoJSON()}, {connect.WithGRPC()}, {connect.WithGRPCWeb()}},
		log: Log{
			Requests: make(map[string]Request),
			Answers:  make(map[string][]Answer),
			Attempts: make(map[string]int),
		},
	}
}

// Start lets n clients work until ctx ends. A call that has begun is seen through until last ends.
func (l *Load) Start(ctx, last context.Context, n int) {
	for range n {
		l.workers.Go(func() {
			for ctx.Err() == nil {
				l.work(last)
			}
		})
	}
}

// Wait waits for the clients to end, and returns what they saw.
func (l *Load) Wait() Log {
	l.workers.Wait()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
	return l.log
}

// Calls returns how many calls were made so far.
func (l *Load) Calls() int64 { return l.calls.Load() }

// Answers returns how many answers there were so far, replays among them.
func (l *Load) Answers() int64 { return l.answers.Load() }

// Replays returns how many answers so far were replays.
func (l *Load) Replays() int64 { return l.replays.Load() }

// work is one piece of a client's work: mostly a new key, from one caller or from several at once; or one that was
// answered before, with the same request or with another.
func (l *Load) work(ctx context.Context) {
	old, ok := l.answered()
	switch n := rand.IntN(100); {
	case n < 8 && ok:
		l.until(ctx, old)
	case n < 10 && ok:
		l.reuse(ctx, old)
	case n < 30:
		req := l.newRequest()
		var callers sync.WaitGroup
		for range 2 + rand.IntN(2) {
			callers.Go(func() { l.until(ctx, req) })
		}
		callers.Wait()
	default:
		l.until(ctx, l.newRequest())
	}
}

func (l *Load) newRequest() Request {
	cards := []string{
		target.CardOK, target.CardOK, target.CardOK, target.CardDeclined, target.CardDeclinedKept,
		target.CardBroken, target.CardFlaky, target.CardPanic,
	}
	req := Request{
		Key:    fmt.Sprintf("%s-%d", l.prefix, l.keys.Add(1)),
		Card:   cards[rand.IntN(len(cards))],
		Amount: 1 + rand.Int64N(10_000),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.Requests[req.Key] = req
	return req
}

// answered returns a request that was answered before.
func (l *Load) answered() (Request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.done) == 0 {
		return Request{}, false
	}
	return l.done[rand.IntN(len(l.done))], true
}

// Repeat calls once more for each key, with n clients, until each has an answer or ctx ends. Only after Wait.
func (l *Load) Repeat(ctx context.Context, n int, keys []string) Log {
	work := make(chan Request, len(keys))
	for _, key := range keys {
		work <- l.log.Requests[key]
	}
	close(work)
	for range n {
		l.workers.Go(func() {
			for req := range work {
				l.until(ctx, req)
			}
		})
	}
	return l.Wait()
}

// until calls until there is an answer.
func (l *Load) until(ctx context.Context, req Request) {
	start := journal.Now()
	for ctx.Err() == nil {
		switch r := l.call(ctx, req); {
		case r.answer != nil:
			r.answer.Key, r.answer.Start, r.answer.End = req.Key, start, journal.Now()
			l.note(req, *r.answer)
			return
		case r.wrong != "":
			l.wrong(req, r.wrong)
			return
		}
		pause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.Abandoned = append(l.log.Abandoned, req.Key)
}

// reuse sends another request under an answered key, until it is refused as it must be.
func (l *Load) reuse(ctx context.Context, req Request) {
	other := req
	other.Amount += 1_000_000
	for ctx.Err() == nil {
		switch r := l.call(ctx, other); {
		case r.reused:
			return
		case r.answer != nil:
			l.wrong(req, fmt.Sprintf("another request under the key was answered with %+v", *r.answer))
			return
		case r.wrong != "":
			l.wrong(req, r.wrong)
			return
		}
		pause(ctx)
	}
}

func (l *Load) note(req Request, a Answer) {
	l.answers.Add(1)
	if a.Replayed {
		l.replays.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.log.Answers[req.Key]) == 0 {
		l.done = append(l.done, req)
	}
	l.log.Answers[req.Key] = append(l.log.Answers[req.Key], a)
}

func (l *Load) wrong(req Request, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.Wrong = append(l.log.Wrong, fmt.Sprintf("key %s (%s): %s", req.Key, req.Card, what))
}

// pause is what a polite client waits before it tries again.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)):
	}
}

func (l *Load) client() chargesv1connect.ChargeServiceClient {
	protocol := rand.IntN(len(l.clients))
	return chargesv1connect.NewChargeServiceClient(l.clients[protocol], "http://"+l.addrs[rand.IntN(len(l.addrs))](), l.options[protocol]...)
}

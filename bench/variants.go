package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// variant is one way to do the work.
type variant struct {
	name  string
	label string // of the stage's conditions
	times int
	// call makes one call of a caller's, and fails unless the answer is the one that was to be expected.
	call func(ctx context.Context, caller int) error
	// enter, if set, prepares a slice of so many calls; leave comes after it.
	enter func(ctx context.Context, calls int) (leave func() error, err error)
}

// definition makes a variant on a stage.
type definition struct {
	name, about string
	// times is how many times as many calls a turn has as one of first calls, which take longest, so that none is over at once.
	times int
	build func(s *stage, ctx context.Context, name string) (*variant, error)
}

// definitions are all variants, in the order of their turns: those that are compared stand together.
func definitions() []definition {
	return []definition{
		{"sql-insert", "SQL alone: a finished key row inserted, one autocommit", 1, (*stage).sqlInsert},
		{"sql-select", "SQL alone: a finished key row read by its key", 8, (*stage).sqlSelect},
		{"no-interceptor", "an RPC whose handler does nothing", 8, (*stage).noInterceptor},
		{"no-key", "the same behind the interceptor, no key sent", 8, (*stage).noKey},
		{"memory", "the same behind the interceptor with the memory store, first calls", 8, (*stage).memory},
		{"bare", "the charge in a transaction of its own, no key", 1, hand(byHand.bare)},
		{"least-plain", "by hand: charge and finished key row in one transaction, written plainly", 1, hand(byHand.leastPlain)},
		{"least-pipelined", "by hand: the same, pipelined", 1, hand(byHand.leastPipelined)},
		{"transactional", "guarded, transactional, first calls", 1, (*stage).first},
		{"mixed-transactional", "guarded, transactional, 1 % of the calls are retries", 1, (*stage).mixed},
		{"waiting-transactional", "guarded, transactional: two calls with one key at once, one waits", 1, (*stage).waiting},
		{"pattern", "by hand: insert the key, the charge, update the key; three autocommits", 1, hand(byHand.pattern)},
		{"pattern-on-conflict", "by hand: the same, the key with ON CONFLICT DO NOTHING", 1, hand(byHand.patternOnConflict)},
		{"leased", "guarded, leased, first calls", 1, (*stage).first},
		{"mixed-leased", "guarded, leased, 1 % of the calls are retries", 1, (*stage).mixed},
		{"waiting-leased", "guarded, leased: two calls with one key at once, one waits", 1, (*stage).waiting},
		{"fiber-bare", "the charge in a transaction of its own, served by Fiber over HTTP/1.1, no key", 1, (*stage).fiberBare},
		{"fiber", "Fiber's idempotency middleware, first calls: charge, then stored answer, in two transactions", 1, (*stage).fiberFirst},
		{"select", "an RPC that is one SELECT by key", 3, (*stage).selectByKey},
		{"replay-transactional", "guarded, transactional, replays at the server that ran the first call", 3, (*stage).replay},
		{"replay-elsewhere-transactional", "guarded, transactional, replays at another server", 3, (*stage).replayElsewhere},
		{"replay-leased", "guarded, leased, replays at the server that ran the first call", 3, (*stage).replay},
		{"replay-elsewhere-leased", "guarded, leased, replays at another server", 3, (*stage).replayElsewhere},
		{"fiber-replay", "Fiber's idempotency middleware, replays", 3, (*stage).fiberReplay},
		{"refusal-transactional", "guarded, transactional, another request under a used key", 3, (*stage).refusal},
		{"refusal-leased", "guarded, leased, another request under a used key", 3, (*stage).refusal},
		{"in-progress-transactional", "guarded, transactional, the first call still runs", 3, (*stage).inProgress},
		{"in-progress-leased", "guarded, leased, the first call still runs", 3, (*stage).inProgress},
	}
}

// everywhere are the variants that are measured under all conditions.
func everywhere() []string {
	return []string{
		"bare", "least-plain", "least-pipelined", "transactional", "pattern", "leased", "select", "replay-transactional", "replay-leased",
	}
}

// build makes the stage's variants whose names only matches.
func (s *stage) build(ctx context.Context, only *regexp.Regexp) ([]*variant, error) {
	wanted := make(map[string]bool)
	for _, name := range s.variants {
		wanted[name] = true
	}
	var all []*variant
	for _, d := range definitions() {
		if len(wanted) > 0 && !wanted[d.name] || !only.MatchString(d.name) {
			continue
		}
		v, err := d.build(s, ctx, d.name)
		if err != nil {
			return nil, err
		}
		v.name, v.label, v.times = d.name, s.label, d.times
		all = append(all, v)
	}
	return all, nil
}

// modeOf is the last word of a variant's name.
func modeOf(name string) string { return name[strings.LastIndex(name, "-")+1:] }

// newKey is a key as clients make them.
func newKey() string { return uuid.NewString() }

func (s *stage) byHand() byHand { return byHand{s.pool} }

// hand is first calls of a handler that keeps its keys itself, or none.
func hand(create func(byHand, context.Context, createRequest) (createResponse, error)) func(*stage, context.Context, string) (*variant, error) {
	return func(s *stage, _ context.Context, name string) (*variant, error) {
		clients := s.serve(name, func(ctx context.Context, req createRequest) (createResponse, error) {
			return create(s.byHand(), ctx, req)
		})
		return &variant{call: func(ctx context.Context, caller int) error {
			return ask(ctx, clients[caller], newKey(), s.request, answer{})
		}}, nil
	}
}

func (s *stage) sqlInsert(context.Context, string) (*variant, error) {
	_, body, bytes, err := s.sample()
	return &variant{call: func(ctx context.Context, _ int) error {
		return s.byHand().insertRow(ctx, newKey(), body, bytes)
	}}, err
}

func (s *stage) sqlSelect(ctx context.Context, _ string) (*variant, error) {
	keys, err := s.storeByHand(ctx)
	return &variant{call: func(ctx context.Context, _ int) error {
		return s.byHand().selectRow(ctx, keys.next())
	}}, err
}

func (s *stage) noInterceptor(_ context.Context, name string) (*variant, error) {
	clients := s.serve(name, s.byHand().nothing)
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], "", s.request, answer{})
	}}, nil
}

func (s *stage) noKey(_ context.Context, name string) (*variant, error) {
	g, err := s.guard(s.stores["leased"])
	if err != nil {
		return nil, err
	}
	clients := s.serve(name, s.byHand().nothing, interceptor.New(g))
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], "", s.request, answer{})
	}}, nil
}

func (s *stage) memory(_ context.Context, name string) (*variant, error) {
	g, err := s.guard(memory.New())
	if err != nil {
		return nil, err
	}
	clients := s.serve(name, s.byHand().nothing, interceptor.New(g))
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], newKey(), s.request, answer{})
	}}, nil
}

func (s *stage) selectByKey(ctx context.Context, name string) (*variant, error) {
	keys, err := s.storeByHand(ctx)
	if err != nil {
		return nil, err
	}
	clients := s.serve(name, s.byHand().stored)
	return &variant{call: func(ctx context.Context, caller int) error {
		return ask(ctx, clients[caller], keys.next(), s.request, answer{})
	}}, nil
}

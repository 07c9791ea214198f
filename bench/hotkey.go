package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// hotCallers send the same key at the same time.
const hotCallers = 500

// hotKey is what became of them.
type hotKey struct {
	Mode                string
	Runs                int64
	Statements, Flights float64       // a caller
	P50, Last           time.Duration // from the end of the handler to the callers' answers
}

// measureHotKey has all callers meet one key. Its handler ends when all others wait.
func measureHotKey(ctx context.Context, at, mode string, p *progress) (h hotKey, err error) {
	p.say("hot key: %d callers, %s", hotCallers, mode)
	s, err := newStage(ctx, conditions{at: at, callers: hotCallers, message: smallMessage})
	if err != nil {
		return h, err
	}
	h.Mode = mode
	var waiting atomic.Int64
	allWait := make(chan struct{})
	g, err := s.guard(s.stores[mode], idempotency.WithWaiting(stopTimeout), idempotency.WithObserver(
		func(_ context.Context, e idempotency.Event) {
			if e.Outcome == idempotency.Waiting && waiting.Add(1) == hotCallers-1 {
				close(allWait)
			}
		}))
	if err != nil {
		return h, err
	}
	var runs atomic.Int64
	var ended time.Time
	clients := s.serve(mode, func(ctx context.Context, req createRequest) (createResponse, error) {
		runs.Add(1)
		select {
		case <-allWait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		res, err := s.byHand().guarded(ctx, req)
		ended = time.Now()
		return res, err
	}, interceptor.New(g))
	statements, flights, err := s.warmConnections(ctx)
	if err != nil {
		return h, err
	}
	answered, err := s.meet(ctx, clients)
	if err != nil {
		return h, err
	}
	if err := s.drain(ctx); err != nil {
		return h, err
	}
	h.Runs = runs.Load()
	h.Statements = float64(s.traffic.statements.Load()-statements) / hotCallers
	h.Flights = float64(s.traffic.flights.Load()-flights) / hotCallers
	late := make([]time.Duration, len(answered))
	for i, at := range answered {
		late[i] = at.Sub(ended)
	}
	slices.Sort(late)
	h.P50, h.Last = percentile(late, 0.5), percentile(late, 1)
	return h, s.close(ctx)
}

// warmConnections has every connection of the pool prepare the statements of claims, so that this is not counted with the
// hot key, and returns what has been sent by then.
func (s *stage) warmConnections(ctx context.Context) (statements, flights int64, err error) {
	v, err := s.replay(ctx, "warm-transactional")
	if err != nil {
		return 0, 0, err
	}
	other, err := s.replay(ctx, "warm-leased")
	if err != nil {
		return 0, 0, err
	}
	for _, one := range []*variant{v, other} {
		if _, err := calls(ctx, one, maxConns, warmCalls/8); err != nil {
			return 0, 0, err
		}
	}
	err = s.drain(ctx)
	return s.traffic.statements.Load(), s.traffic.flights.Load(), err
}

// meet has all callers call with one key, and returns when each was answered. One runs; all others are replays.
func (s *stage) meet(ctx context.Context, clients []chargesv1connect.ChargeServiceClient) ([]time.Time, error) {
	key := newKey()
	answered := make([]time.Time, len(clients))
	all, ctx := errgroup.WithContext(ctx)
	var replays atomic.Int64
	for i, client := range clients {
		all.Go(func() error {
			req := connect.NewRequest(s.request)
			req.Header().Set(header, key)
			res, err := client.CreateCharge(ctx, req)
			answered[i] = time.Now()
			if err == nil && isReplay(res) {
				replays.Add(1)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	if n := replays.Load(); n != hotCallers-1 {
		return nil, fmt.Errorf("%d of %d calls with one key were replayed, and all but one were to be", n, hotCallers)
	}
	return answered, nil
}

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"connectrpc.com/connect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// inProcess is what guard and interceptor need for one call by themselves, without a database and a network: one caller,
// handlers that do nothing.
type inProcess struct {
	Call   string
	Extra  spread // microseconds beyond the bare call
	Allocs spread // beyond the bare call
}

const inProcessCalls = 2000 // in a slice

// measureInProcess has the calls take turns.
func measureInProcess(ctx context.Context, rounds int, p *progress) ([]inProcess, error) {
	g, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		return nil, err
	}
	msg := requestOf(smallMessage)
	_, res := charge(connect.NewRequest(msg))
	bare := connect.UnaryFunc(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return res, nil })
	guarded := interceptor.New(g).WrapUnary(bare)
	once := newKey()
	kinds := []struct {
		name string
		call connect.UnaryFunc
		key  func() string
	}{
		{"bare", bare, newKey},
		{"first call", guarded, newKey},
		{"replay", guarded, func() string { return once }},
		{"no key", guarded, func() string { return "" }},
	}
	took, made := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for round := range rounds + 1 { // the first one is to warm
		p.say("in process: round %d of %d", round, rounds)
		for i, k := range kinds {
			each, allocs, err := inProcessSlice(ctx, k.call, msg, k.key)
			if err != nil {
				return nil, fmt.Errorf("in process: %s: %w", k.name, err)
			}
			if round > 0 {
				took[i], made[i] = append(took[i], each), append(made[i], allocs)
			}
		}
	}
	var all []inProcess
	for i, k := range kinds[1:] {
		all = append(all, inProcess{k.name, beyond(took[i+1], took[0]), beyond(made[i+1], made[0])})
	}
	return all, g.Close(ctx)
}

// beyond subtracts round by round.
func beyond(of, from []float64) spread {
	extra := make([]float64, len(of))
	for i := range extra {
		extra[i] = of[i] - from[i]
	}
	return spreadOf(extra)
}

// inProcessSlice returns the microseconds and the allocations of a call. Its requests are made before.
func inProcessSlice(
	ctx context.Context, call connect.UnaryFunc, msg *chargesv1.CreateChargeRequest, key func() string,
) (micros, allocs float64, err error) {
	requests := make([]createRequest, inProcessCalls)
	for i := range requests {
		requests[i] = connect.NewRequest(msg)
		requests[i].Header().Set("Content-Type", "application/proto")
		if k := key(); k != "" {
			requests[i].Header().Set(header, k)
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for _, req := range requests {
		if _, err := call(ctx, req); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return float64(took.Nanoseconds()) / 1000 / inProcessCalls, float64(after.Mallocs-before.Mallocs) / inProcessCalls, nil
}

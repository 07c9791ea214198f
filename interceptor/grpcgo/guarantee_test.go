package grpcgo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// charging has an effect, and answers with the number of the run.
func charging(b backend, runs *atomic.Int32) createFunc {
	return func(ctx context.Context, req *chargesv1.CreateChargeRequest) (any, error) {
		n := runs.Add(1)
		if err := b.effect(ctx, req.Description); err != nil {
			return nil, err
		}
		return created(fmt.Sprintf("ch_%d", n)), nil
	}
}

// Many callers with one key make one charge.
func TestOneKeyOneEffect(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t)
			var runs atomic.Int32
			client := guarded(t, b.guard(t), charging(b, &runs))
			var callers sync.WaitGroup
			for range 32 {
				callers.Go(func() {
					a := client.create(within(t), "k", "one")
					switch {
					case a.err == nil && a.id() != "ch_1":
						t.Errorf("answered %q, want ch_1", a.id())
					case a.err != nil && a.status().Code() != codes.Aborted:
						t.Errorf("got %v", a.err)
					}
				})
			}
			callers.Wait()
			client.create(within(t), "k", "one").mustSucceed(t, "ch_1", true)
			if runs.Load() != 1 || b.effects(t) != 1 {
				t.Errorf("%d runs and %d effects, want one of each", runs.Load(), b.effects(t))
			}
		})
	}
}

// A scope, which a server reads from the call's context, never sees another's reply.
func TestScopes(t *testing.T) {
	b := databases["leased"](t)
	var runs atomic.Int32
	tenant := func(ctx context.Context, _ idempotency.Call) (string, error) {
		return metadata.ValueFromIncomingContext(ctx, "x-tenant")[0], nil
	}
	client := guarded(t, b.guard(t, idempotency.WithScope(tenant)), charging(b, &runs))
	for i, name := range []string{"a", "b", "a", "b"} {
		ctx := metadata.AppendToOutgoingContext(within(t), "x-tenant", name)
		client.create(ctx, "k", "one").mustSucceed(t, fmt.Sprintf("ch_%d", 1+i%2), i > 1)
	}
}

// A client that hangs up does not lose the reply. A leased handler runs on; a transactional one that is done in spite of it
// is kept.
func TestClientHangsUp(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t)
			var runs atomic.Int32
			charge := charging(b, &runs)
			running, finish := make(chan struct{}), make(chan struct{})
			handler := func(ctx context.Context, req *chargesv1.CreateChargeRequest) (any, error) {
				res, err := charge(ctx, req)
				close(running)
				if b.store.Transactional() {
					<-ctx.Done()
				}
				<-finish
				if ended := ctx.Err() != nil; ended != b.store.Transactional() {
					t.Errorf("the handler's context has ended: %v", ended)
				}
				return res, errors.Join(err, grpc.SetHeader(ctx, metadata.Pairs("x-run", "1")))
			}
			settled := make(chan struct{}, 2)
			observe := idempotency.WithObserver(func(context.Context, idempotency.Event) { settled <- struct{}{} })
			client := guarded(t, b.guard(t, observe), handler)
			ctx, hangUp := context.WithCancel(within(t))
			go func() {
				<-running
				hangUp()
			}()
			if a := client.create(ctx, "k", "one"); a.status().Code() != codes.Canceled {
				t.Fatalf("the first caller got %v, want its own cancellation", a.err)
			}
			close(finish)
			<-settled
			a := client.create(within(t), "k", "one")
			a.mustSucceed(t, "ch_1", true)
			if runs.Load() != 1 || b.effects(t) != 1 || len(a.header["x-run"]) != 1 {
				t.Errorf("%d runs and %d effects, header %v; want one of each", runs.Load(), b.effects(t), a.header)
			}
		})
	}
}

// A handler that panics leaves the key free, and its effect undone where it is transactional; the panic goes on up, and
// what the run had set is not heard.
func TestPanic(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t)
			var runs atomic.Int32
			charge := charging(b, &runs)
			handler := func(ctx context.Context, req *chargesv1.CreateChargeRequest) (any, error) {
				res, err := charge(ctx, req)
				if err := grpc.SendHeader(ctx, metadata.Pairs("x-run", "1")); err != nil {
					t.Error(err)
				}
				if runs.Load() == 1 {
					panic("the first run")
				}
				return res, err
			}
			recovering := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
				defer func() {
					if p := recover(); p != nil {
						err = status.Error(codes.Internal, fmt.Sprint("recovered: ", p))
					}
				}()
				return next(ctx, req)
			}
			client := guarded(t, b.guard(t), handler, recovering)
			a := client.create(within(t), "k", "one")
			if a.status().Message() != "recovered: the first run" || len(a.header["x-run"]) > 0 {
				t.Errorf("the first caller got %v, header %v", a.err, a.header)
			}
			client.create(within(t), "k", "one").mustSucceed(t, "ch_2", false)
			if want := map[string]int{"leased": 2, "transactional": 1}[mode]; b.effects(t) != want {
				t.Errorf("%d effects, want %d", b.effects(t), want)
			}
		})
	}
}

// A conflict is seen where the handler's error has the database's own in its chain, whatever its status; nothing was done.
func TestTransactionConflict(t *testing.T) {
	b := databases["transactional"](t)
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		if err := set(ctx, metadata.Pairs("x-run", "1"), metadata.Pairs("x-run", "1")); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", status.Error(codes.Internal, "no luck"), b.conflict(ctx))
	}
	a := guarded(t, b.guard(t), handler).create(within(t), "k", "one")
	a.mustBeRefused(t, codes.Aborted, idempotency.ReasonTxConflict)
	checkRetry(t, a, true)
	if len(a.trailer["x-run"]) > 0 {
		t.Errorf("the run was heard: %v", a.trailer)
	}
}

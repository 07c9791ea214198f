package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// flights counts what a pool sends.
type flights struct{ n atomic.Int32 }

func (f *flights) on(c *pgxpool.Config) { c.ConnConfig.Tracer = f }

func (f *flights) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	f.n.Add(1)
	return ctx
}

func (*flights) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (f *flights) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	f.n.Add(1)
	return ctx
}

func (*flights) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*flights) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// 500 calls wait, on one key and on 500, for first calls that run in another process; they hold none of the pool's four
// connections, and look together.
func TestManyWaitForAnotherProcess(t *testing.T) {
	const waiters = 500
	for mode, makeStore := range map[string]func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error){
		"leased": postgres.New, "transactional": postgres.NewTransactional,
	} {
		for _, keys := range []int{1, waiters} {
			t.Run(fmt.Sprintf("%s/%d keys", mode, keys), func(t *testing.T) {
				conns := int32(4)
				if mode == "transactional" {
					conns = int32(keys) + 1 // each first call holds one
				}
				server := pgtest.Server(t, map[string]string{"max_connections": "600"})
				elsewhere := onDatabase(t, server.URL("postgres"), makeStore, conns, postgres.WithTimeout(time.Minute)) // connecting takes its time
				var sent flights
				pool := pgtest.Pool(t, elsewhere.pool.Config().ConnString(), sent.on, func(c *pgxpool.Config) { c.MaxConns = 4 })
				s, err := makeStore(pool)
				if err != nil {
					t.Fatal(err)
				}
				connectAll(t, pool)
				here := backend{store: s, pool: pool}
				first := holdAll(t, elsewhere.guard(t), keys)
				waiting := make(chan struct{}, waiters)
				guard := here.guard(t, idempotency.WithWaiting(5*time.Minute), idempotency.WithObserver(
					func(_ context.Context, e idempotency.Event) {
						if e.Outcome == idempotency.Waiting {
							waiting <- struct{}{}
						}
					}))

				var calls sync.WaitGroup
				for i := range waiters {
					calls.Go(func() {
						r, replayed, err := guard.Do(patiently(t), keyed(fmt.Sprint("k", i%keys)), mustNotRun(t))
						if err != nil || !replayed || r.Message == nil {
							t.Errorf("one who waited got %v, replayed = %v, %v", r, replayed, err)
						}
					})
				}
				for range waiters {
					<-waiting
				}
				if err := s.Drain(patiently(t)); err != nil { // what a claim that did not win leaves to roll back
					t.Fatal(err)
				}
				waited := pool.Stat().EmptyAcquireCount()
				for i := range 50 {
					mustDo(t, guard, fmt.Sprint("more-", i))
				}
				if n := pool.Stat().EmptyAcquireCount() - waited; n > 0 {
					t.Errorf("%d times another call had to wait for a connection", n)
				}
				first.release()
				calls.Wait()
				if n, most := int(sent.n.Load()), max(waiters, 3*keys); n > most {
					t.Errorf("%d flights for %d who wait, want at most %d", n, waiters, most)
				}
			})
		}
	}
}

// connectAll has the pool make all its connections.
func connectAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conns := make([]*pgxpool.Conn, pool.Config().MaxConns)
	for i := range conns {
		var err error
		if conns[i], err = pool.Acquire(patiently(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		conn.Release()
	}
}

// patiently leaves time for 500 connections to be made.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func keyed(key string) idempotency.Call {
	return idempotency.Call{Procedure: "/p", Keys: []string{key}, Request: new(chargesv1.CreateChargeRequest)}
}

func mustNotRun(t *testing.T) func(context.Context) idempotency.Reply {
	t.Helper()
	return func(context.Context) idempotency.Reply {
		t.Error("one who waited has run")
		return idempotency.Reply{}
	}
}

func mustDo(t *testing.T, g *idempotency.Guard, key string) {
	t.Helper()
	_, _, err := g.Do(patiently(t), keyed(key), func(context.Context) idempotency.Reply {
		return idempotency.Reply{Message: new(chargesv1.CreateChargeResponse)}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// held are first calls that run until they are released.
type held struct {
	goOn  chan struct{}
	calls sync.WaitGroup
}

func holdAll(t *testing.T, g *idempotency.Guard, keys int) *held {
	t.Helper()
	h := &held{goOn: make(chan struct{})}
	var running sync.WaitGroup
	running.Add(keys)
	for i := range keys {
		h.calls.Go(func() {
			_, _, err := g.Do(patiently(t), keyed(fmt.Sprint("k", i)), func(context.Context) idempotency.Reply {
				running.Done()
				<-h.goOn
				return idempotency.Reply{Message: new(chargesv1.CreateChargeResponse)}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	return h
}

func (h *held) release() {
	close(h.goOn)
	h.calls.Wait()
}

// A handler whose transaction met a conflict runs again where that is asked for, as if the first run had not been.
func TestConflictRunsAgain(t *testing.T) {
	b := databases["transactional"](t, 4)
	runs := 0
	create := func(ctx context.Context, req createRequest) (createResponse, error) {
		runs++
		info, _ := connect.CallInfoForHandlerContext(ctx)
		info.ResponseHeader().Add("X-Run", fmt.Sprint(runs))
		if err := b.effect(ctx, req.Msg.Description); err != nil {
			return nil, err
		}
		if runs < 3 {
			_, err := postgres.Querier(ctx, b.pool).Exec(ctx, "do $$ begin raise exception 'met another' using errcode = '40P01'; end $$")
			return nil, connect.NewError(connect.CodeInternal, errors.Join(errors.New("no luck"), err))
		}
		return created("ch_1"), nil
	}
	client := guarded(t, b.guard(t, idempotency.WithConflictRetries(2)), service{create: create}).client(t, "grpc")
	for _, replayed := range []bool{false, true} {
		res, err := client.CreateCharge(within(t), charge("k", "one"))
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header()["X-Run"]; len(got) != 1 || got[0] != "3" {
			t.Errorf("replayed %v: X-Run is %v, want the third run's alone", replayed, got)
		}
	}
	if runs != 3 || b.effects(t) != 1 {
		t.Errorf("%d runs and %d effects, want three and one", runs, b.effects(t))
	}
}

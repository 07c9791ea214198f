package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

var databases = map[string]func(*testing.T, int32) backend{
	"leased":        func(t *testing.T, conns int32) backend { return onPostgres(t, postgres.New, conns) },
	"transactional": func(t *testing.T, conns int32) backend { return onPostgres(t, postgres.NewTransactional, conns) },
}

// charges has an effect, and answers with the number of the run.
func charges(b backend, runs *atomic.Int32) createFunc {
	return func(ctx context.Context, req createRequest) (createResponse, error) {
		n := runs.Add(1)
		if err := b.effect(ctx, req.Msg.Description); err != nil {
			return nil, err
		}
		return created(fmt.Sprintf("ch_%d", n)), nil
	}
}

// Guarantee 1: 64 callers with one key make one charge, on a pool of one connection too.
func TestOneKeyOneEffect(t *testing.T) {
	for mode, makeBackend := range databases {
		for _, conns := range []int32{1, 8} {
			t.Run(fmt.Sprintf("%s/%d connections", mode, conns), func(t *testing.T) {
				b := makeBackend(t, conns)
				var runs atomic.Int32
				s := guarded(t, b.guard(t), service{create: charges(b, &runs)})
				var callers sync.WaitGroup
				for range 16 {
					for protocol := range protocols {
						client := s.client(t, protocol)
						callers.Go(func() {
							res, err := client.CreateCharge(within(t), charge("k", "one"))
							if err == nil && res.Msg.GetCharge().GetId() != "ch_1" {
								t.Errorf("answered %v, want ch_1", res.Msg)
							}
							if err != nil {
								mustRefuse(t, err, connect.CodeAborted, idempotency.ReasonKeyInProgress)
							}
						})
					}
				}
				callers.Wait()
				if runs.Load() != 1 || b.effects(t) != 1 {
					t.Errorf("%d runs and %d effects, want one of each", runs.Load(), b.effects(t))
				}
				res, err := s.client(t, "grpc").CreateCharge(within(t), charge("k", "one"))
				if err != nil || res.Msg.GetCharge().GetId() != "ch_1" {
					t.Errorf("a late retry got %v, %v; want ch_1", res, err)
				}
			})
		}
	}
}

// Guarantee 4: a scope never sees another's reply, and two procedures do not share one.
func TestScopesAndProcedures(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t, 8)
			var runs atomic.Int32
			tenant := func(ctx context.Context, _ idempotency.Call) (string, error) {
				info, _ := connect.CallInfoForHandlerContext(ctx)
				return info.RequestHeader().Get("X-Tenant"), nil
			}
			g, err := idempotency.New(b.store, idempotency.WithScope(tenant))
			if err != nil {
				t.Fatal(err)
			}
			client := guarded(t, g, service{create: charges(b, &runs)}).client(t, "grpc")
			for i, name := range []string{"a", "b", "a", "b"} {
				req := charge("k", "one")
				req.Header().Set("X-Tenant", name)
				res, err := client.CreateCharge(within(t), req)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := res.Msg.GetCharge().GetId(), fmt.Sprintf("ch_%d", 1+i%2); got != want {
					t.Errorf("tenant %s got %s, want %s", name, got, want)
				}
			}
			refund := connect.NewRequest(&chargesv1.RefundChargeRequest{Id: "ch_1"})
			refund.Header().Set("Idempotency-Key", "k")
			refund.Header().Set("X-Tenant", "a")
			_, err = client.RefundCharge(within(t), refund)
			mustRefuse(t, err, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
		})
	}
}

// A call whose scope cannot be told is refused as the scope function says, and leaves nothing.
func TestScopeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want connect.Code
	}{
		"connect's own": {connect.NewError(connect.CodeUnauthenticated, errors.New("who are you?")), connect.CodeUnauthenticated},
		"any other":     {errors.New("the tenants' table is down"), connect.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			b := backends["memory"](t)
			b.store = neverClaimed{b.store, t}
			scope := func(context.Context, idempotency.Call) (string, error) { return "", test.err }
			client := guarded(t, b.guard(t, idempotency.WithScope(scope)), service{create: respond}).client(t, "grpc")
			_, err := client.CreateCharge(within(t), charge("k", ""))
			if connect.CodeOf(err) != test.want || strings.Contains(err.Error(), "table") {
				t.Errorf("refused with %v, want %v", err, test.want)
			}
		})
	}
}

// Guarantee 6: a client that hangs up does not lose the reply. A leased handler runs on; a transactional one that is done
// in spite of it is kept.
func TestClientHangsUp(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t, 8)
			var runs atomic.Int32
			inner := charges(b, &runs)
			running, finished := make(chan struct{}), make(chan struct{})
			ctx, hangUp := context.WithCancel(within(t))
			create := func(ctx context.Context, req createRequest) (createResponse, error) {
				res, err := inner(ctx, req)
				close(running)
				if b.store.Transactional() {
					<-ctx.Done()
				} else {
					<-finished
					if ctx.Err() != nil {
						t.Error("the leased handler's context ended with its client")
					}
				}
				return res, err
			}
			settled := make(chan struct{}, 2)
			observe := idempotency.WithObserver(func(context.Context, idempotency.Event) { settled <- struct{}{} })
			client := guarded(t, b.guard(t, observe), service{create: create}).client(t, "grpc")
			go func() {
				<-running
				hangUp()
			}()
			if _, err := client.CreateCharge(ctx, charge("k", "one")); connect.CodeOf(err) != connect.CodeCanceled {
				t.Fatalf("the first caller got %v, want its own cancellation", err)
			}
			close(finished)
			<-settled
			res, err := client.CreateCharge(within(t), charge("k", "one"))
			if err != nil || res.Msg.GetCharge().GetId() != "ch_1" || runs.Load() != 1 || b.effects(t) != 1 {
				t.Errorf("the retry got %v, %v after %d runs and %d effects; want ch_1 of one run", res, err, runs.Load(), b.effects(t))
			}
		})
	}
}

// A handler that panics leaves the key free, and its effect undone where it is transactional; the panic goes on up.
func TestPanic(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t, 8)
			var runs atomic.Int32
			inner := charges(b, &runs)
			create := func(ctx context.Context, req createRequest) (createResponse, error) {
				res, err := inner(ctx, req)
				if runs.Load() == 1 {
					panic("the first run")
				}
				return res, err
			}
			var seen atomic.Value
			_, handler := chargesv1connect.NewChargeServiceHandler(service{create: create},
				connect.WithRecover(func(_ context.Context, _ connect.Spec, _ http.Header, p any) error {
					seen.Store(p)
					return connect.NewError(connect.CodeInternal, errors.New("recovered"))
				}),
				connect.WithInterceptors(interceptor.New(b.guard(t))))
			client := serve(t, handler).client(t, "grpc")
			if _, err := client.CreateCharge(within(t), charge("k", "one")); connect.CodeOf(err) != connect.CodeInternal {
				t.Fatalf("the first caller got %v", err)
			}
			if seen.Load() != "the first run" {
				t.Errorf("the panic that came up was %v", seen.Load())
			}
			if _, err := client.CreateCharge(within(t), charge("k", "one")); err != nil {
				t.Errorf("the retry got %v", err)
			}
			if want := map[string]int{"leased": 2, "transactional": 1}[mode]; b.effects(t) != want {
				t.Errorf("%d effects, want %d", b.effects(t), want)
			}
		})
	}
}

// A backend that is ended in mid-call: nothing was done, the client is told to retry, and the retry runs.
func TestConnectionTerminated(t *testing.T) {
	for name, ends := range map[string]error{"then success": nil, "then an error": errors.New("the handler saw it")} {
		t.Run(name, func(t *testing.T) {
			b := databases["transactional"](t, 1)
			watcher := onSameDatabase(t, b)
			var runs atomic.Int32
			inner := charges(b, &runs)
			create := func(ctx context.Context, req createRequest) (createResponse, error) {
				res, err := inner(ctx, req)
				if runs.Load() > 1 {
					return res, err
				}
				tx, _ := postgres.TxFrom(ctx)
				if _, err := watcher.Exec(ctx, "select pg_terminate_backend($1)", tx.Conn().PgConn().PID()); err != nil {
					t.Error(err)
				}
				return res, ends
			}
			client := guarded(t, b.guard(t), service{create: create}).client(t, "grpc")
			_, err := client.CreateCharge(within(t), charge("k", "one"))
			checkRetry(t, refusedAs(t, err, connect.CodeUnavailable, idempotency.ReasonStoreUnavailable), true)
			if _, err := client.CreateCharge(within(t), charge("k", "one")); err != nil {
				t.Errorf("the retry got %v", err)
			}
			if b.effects(t) != 1 {
				t.Errorf("%d effects, want 1", b.effects(t))
			}
		})
	}
}

// A conflict that the handler's transaction met is the client's to retry, and nothing was done.
func TestTransactionConflict(t *testing.T) {
	b := databases["transactional"](t, 8)
	conflict := func(ctx context.Context, _ createRequest) (createResponse, error) {
		_, err := postgres.Querier(ctx, b.pool).Exec(ctx, "do $$ begin raise exception 'met another' using errcode = '40001'; end $$")
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	client := guarded(t, b.guard(t), service{create: conflict}).client(t, "connect proto")
	_, err := client.CreateCharge(within(t), charge("k", "one"))
	checkRetry(t, refusedAs(t, err, connect.CodeAborted, idempotency.ReasonTxConflict), true)
}

// Success over a transaction that had failed is no success.
func TestSuccessOverAFailedTransaction(t *testing.T) {
	b := databases["transactional"](t, 8)
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		if _, err := postgres.Querier(ctx, b.pool).Exec(ctx, "select 1/0"); err == nil {
			t.Error("a division by zero succeeded")
		}
		return created("ch_1"), nil
	}
	client := guarded(t, b.guard(t), service{create: create}).client(t, "grpc-web")
	_, err := client.CreateCharge(within(t), charge("k", "one"))
	mustRefuse(t, err, connect.CodeInternal, idempotency.ReasonTxRejected)
}

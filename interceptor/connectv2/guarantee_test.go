package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect/v2"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// charges has an effect, and answers with the number of the run.
func charges(b backend, runs *atomic.Int32) createFunc {
	return func(ctx context.Context, req createRequest) (createResponse, error) {
		n := runs.Add(1)
		if err := b.effect(ctx, req.Description); err != nil {
			return nil, err
		}
		return created(fmt.Sprintf("ch_%d", n)), nil
	}
}

// Many callers with one key, over all protocols, make one charge.
func TestOneKeyOneEffect(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t)
			var runs atomic.Int32
			s := guarded(t, b.guard(t), charges(b, &runs))
			answers := make(chan answer, 8*len(protocols))
			var callers sync.WaitGroup
			for range 8 {
				for protocol := range protocols {
					c := s.client(t, protocol)
					callers.Go(func() { answers <- c.charge(t, "k", "one") })
				}
			}
			callers.Wait()
			close(answers)
			for a := range answers {
				if a.code != 0 {
					a.mustRefuse(t, connect.CodeAborted, idempotency.ReasonKeyInProgress)
					continue
				}
				a.mustBe(t, "ch_1")
			}
			if runs.Load() != 1 || b.effects(t) != 1 {
				t.Errorf("%d runs and %d effects, want one of each", runs.Load(), b.effects(t))
			}
			s.client(t, "grpc").charge(t, "k", "one").mustBe(t, "ch_1")
		})
	}
}

// A scope never sees another's reply, and two procedures do not share one.
func TestScopesAndProcedures(t *testing.T) {
	var runs atomic.Int32
	tenant := func(ctx context.Context, _ idempotency.Call) (string, error) {
		info, _ := connect.CallInfoForServerContext(ctx)
		return info.RequestHeader().Get("X-Tenant"), nil
	}
	create := func(context.Context, createRequest) (createResponse, error) {
		return created(fmt.Sprintf("ch_%d", runs.Add(1))), nil
	}
	s := guarded(t, backends["memory"](t).guard(t, idempotency.WithScope(tenant)), create)
	for _, protocol := range []string{"connect json", inProcess} {
		c := s.client(t, protocol)
		for i, name := range []string{"a", "b", "a", "b"} {
			ctx, info := keyedContext(t, "k")
			info.RequestHeader().Set("X-Tenant", name)
			res, err := c.CreateCharge(ctx, request(""))
			answerOf(t, info, res, err).mustBe(t, fmt.Sprintf("ch_%d", 1+i%2))
		}
		ctx, info := keyedContext(t, "k")
		info.RequestHeader().Set("X-Tenant", "a")
		_, err := c.RefundCharge(ctx, &chargesv1.RefundChargeRequest{Id: "ch_1"})
		answerOf(t, info, nil, err).mustRefuse(t, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
	}
}

// A client that hangs up does not lose the reply. A leased handler runs on; a transactional one that is done in spite of it
// is kept.
func TestClientHangsUp(t *testing.T) {
	for mode, makeBackend := range databases {
		for _, protocol := range []string{"connect proto", "grpc", inProcess} {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				b := makeBackend(t)
				var runs atomic.Int32
				inner := charges(b, &runs)
				running, finish := make(chan struct{}), make(chan struct{})
				ctx, _ := keyedContext(t, "k")
				ctx, hangUp := context.WithCancel(ctx)
				create := func(ctx context.Context, req createRequest) (createResponse, error) {
					res, err := inner(ctx, req)
					close(running)
					if b.store.Transactional() {
						<-ctx.Done()
					} else {
						<-finish
						if ctx.Err() != nil {
							t.Error("the leased handler's context ended with its client")
						}
					}
					return res, err
				}
				settled := make(chan struct{}, 2)
				observe := idempotency.WithObserver(func(context.Context, idempotency.Event) { settled <- struct{}{} })
				c := guarded(t, b.guard(t, observe), create).client(t, protocol)
				go func() {
					<-running
					hangUp()
					if protocol == inProcess {
						close(finish) // the caller's own goroutine runs the handler
					}
				}()
				_, err := c.CreateCharge(ctx, request("one"))
				if protocol != inProcess {
					if connect.CodeOf(err) != connect.CodeCanceled {
						t.Fatalf("the first caller got %v, want its own cancellation", err)
					}
					close(finish)
				}
				<-settled
				a := c.charge(t, "k", "one")
				a.mustBe(t, "ch_1")
				if runs.Load() != 1 || b.effects(t) != 1 {
					t.Errorf("%d runs and %d effects, want one of each", runs.Load(), b.effects(t))
				}
			})
		}
	}
}

// A handler that panics leaves the key free, and its effect undone where it is transactional; the panic goes on up.
func TestPanic(t *testing.T) {
	for mode, makeBackend := range databases {
		for _, protocol := range []string{"grpc", inProcess} {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				b := makeBackend(t)
				var runs atomic.Int32
				inner := charges(b, &runs)
				create := func(ctx context.Context, req createRequest) (createResponse, error) {
					res, err := inner(ctx, req)
					if runs.Load() == 1 {
						panic("the first run")
					}
					return res, err
				}
				var seen any
				outer := func(next connect.ServerFunc) connect.ServerFunc {
					return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
						defer func() {
							if p := recover(); p != nil {
								seen, err = p, connect.NewError(connect.CodeInternal, "recovered")
							}
						}()
						return next(ctx, spec, stream)
					}
				}
				c := guarded(t, b.guard(t), create, outer).client(t, protocol)
				if a := c.charge(t, "k", "one"); a.text != "recovered" || seen != "the first run" {
					t.Fatalf("the first caller got %+v, and the panic that came up was %v", a, seen)
				}
				c.charge(t, "k", "one").mustBe(t, "ch_2")
				if want := map[string]int{"leased": 2, "transactional": 1}[mode]; b.effects(t) != want {
					t.Errorf("%d effects, want %d", b.effects(t), want)
				}
			})
		}
	}
}

// An error that may go away by itself frees the key, and a retry runs.
func TestReleasedAndRunAgain(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t)
			fails := false
			create := func(ctx context.Context, req createRequest) (createResponse, error) {
				if err := b.effect(ctx, req.Description); err != nil {
					return nil, err
				}
				if fails = !fails; fails {
					return nil, connect.NewError(connect.CodeUnavailable, "the bank is closed")
				}
				return created("ch_1"), nil
			}
			for protocol, c := range guarded(t, b.guard(t), create).clients(t) {
				key := fmt.Sprintf("%x", protocol)
				if a := c.charge(t, key, "one"); a.code != connect.CodeUnavailable || a.text != "the bank is closed" {
					t.Fatalf("%s: the first caller got %+v", protocol, a)
				}
				for _, replayed := range []bool{false, true} {
					a := c.charge(t, key, "one")
					a.mustBe(t, "ch_1")
					if a.replayed() != replayed {
						t.Errorf("%s: %+v, want replayed = %v", protocol, a, replayed)
					}
				}
			}
			if want := map[string]int{"leased": 2, "transactional": 1}[mode] * len(protocols); b.effects(t) != want {
				t.Errorf("%d effects, want %d", b.effects(t), want)
			}
		})
	}
}

// conflict fails as a transaction does that met another.
func conflict(ctx context.Context, b backend) error {
	_, err := postgres.Querier(ctx, b.pool).Exec(ctx, "do $$ begin raise exception 'met another' using errcode = '40P01'; end $$")
	return err
}

// A handler whose transaction met a conflict runs again where that is asked for, as if the first run had not been: with its
// request as it came, and without header and trailer.
func TestConflictRunsAgain(t *testing.T) {
	b := databases["transactional"](t)
	runs := 0
	create := func(ctx context.Context, req createRequest) (createResponse, error) {
		runs++
		info, _ := connect.CallInfoForServerContext(ctx)
		info.ResponseHeader().Add("X-Run", fmt.Sprint(runs))
		info.ResponseTrailer().Add("X-Run-Trailer", fmt.Sprint(runs))
		if err := b.effect(ctx, req.Description); err != nil {
			return nil, err
		}
		if req.Description != "one" {
			t.Errorf("run %d got %q", runs, req.Description)
		}
		req.Description = "changed"
		if runs < 3 {
			return nil, connect.NewError(connect.CodeInternal, "no luck").WithCause(conflict(ctx, b))
		}
		return created("ch_1"), nil
	}
	clients := guarded(t, b.guard(t, idempotency.WithConflictRetries(2)), create).clients(t)
	made := 0
	for protocol, c := range clients {
		runs = 0
		made++
		for _, replayed := range []bool{false, true} {
			a := c.charge(t, fmt.Sprintf("%x", protocol), "one")
			a.mustBe(t, "ch_1")
			header, trailer := a.values("X-Run"), a.values("X-Run-Trailer")
			if a.replayed() != replayed || fmt.Sprint(header, trailer) != "[3] [3]" {
				t.Errorf("%s, replayed %v: X-Run %v and %v, want the third run's alone", protocol, replayed, header, trailer)
			}
		}
		if runs != 3 || b.effects(t) != made {
			t.Errorf("%s: %d runs and %d effects, want three and %d", protocol, runs, b.effects(t), made)
		}
	}
}

// A conflict that the handler's transaction met is the client's to retry, and nothing was done.
func TestTransactionConflict(t *testing.T) {
	b := databases["transactional"](t)
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		return nil, errors.Join(errors.New("no luck"), conflict(ctx, b))
	}
	a := guarded(t, b.guard(t), create).client(t, "connect proto").charge(t, "k", "one")
	a.mustRefuse(t, connect.CodeAborted, idempotency.ReasonTxConflict)
	a.mustSayWhen(t, true)
}

// Success over a transaction that had failed is no success.
func TestSuccessOverAFailedTransaction(t *testing.T) {
	b := databases["transactional"](t)
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		if _, err := postgres.Querier(ctx, b.pool).Exec(ctx, "select 1/0"); err == nil {
			t.Error("a division by zero succeeded")
		}
		return created("ch_1"), nil
	}
	guarded(t, b.guard(t), create).client(t, "grpc-web").charge(t, "k", "one").
		mustRefuse(t, connect.CodeInternal, idempotency.ReasonTxRejected)
}

package interceptor_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// marked sets header and trailer through the call info, as handlers of the simple API do.
func marked(ctx context.Context) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	info.ResponseHeader().Set("X-Late", "yes")
	info.ResponseTrailer().Set("X-Late-Trailer", "yes")
}

// requireUnmarked fails t where something of what marked set came through, or where what an outer interceptor set did not.
func requireUnmarked(t *testing.T, header, trailer http.Header) {
	t.Helper()
	if header["X-Late"] != nil || header["X-Late-Trailer"] != nil || trailer["X-Late-Trailer"] != nil {
		t.Errorf("header %v and trailer %v have something of the attempt's own", header, trailer)
	}
	if header["X-Outer"] == nil {
		t.Errorf("the header %v lacks what the outer interceptor set", header)
	}
}

func setsOuter(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		info, _ := connect.CallInfoForHandlerContext(ctx)
		info.ResponseHeader().Set("X-Outer", "yes")
		return next(ctx, req)
	}
}

// An attempt that lost its key sends nothing of its own, header and trailer included: its caller gets the other's reply.
func TestFencedAttemptSendsNothing(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var g *idempotency.Guard
			create := func(ctx context.Context, req createRequest) (createResponse, error) {
				marked(ctx)
				if _, err := g.Forget(ctx, "", "k"); err != nil {
					t.Error(err)
				}
				call := idempotency.Call{
					Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure, Keys: []string{"k"}, Request: req.Msg,
				}
				_, _, err := g.Do(ctx, call, func(context.Context) idempotency.Reply {
					return idempotency.Reply{Message: created("ch_other").Msg}
				})
				if err != nil {
					t.Error(err)
				}
				return created("ch_late"), nil
			}
			g = backend{store: memory.New()}.guard(t)
			client := guarded(t, g, service{create: create}, connect.UnaryInterceptorFunc(setsOuter)).client(t, protocol)
			res, err := client.CreateCharge(within(t), charge("k", ""))
			if err != nil {
				t.Fatal(err)
			}
			if id := res.Msg.GetCharge().GetId(); id != "ch_other" {
				t.Errorf("answered with %s, want the other's reply", id)
			}
			requireUnmarked(t, res.Header(), res.Trailer())
		})
	}
}

// An attempt that could not be settled sends nothing of its own.
func TestRefusedAttemptSendsNothing(t *testing.T) {
	b := backends["transactional"](t)
	b.store = neverCompletes{b.store}
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		marked(ctx)
		return created("ch_1"), nil
	}
	s := guarded(t, b.guard(t), service{create: create}, connect.UnaryInterceptorFunc(setsOuter))
	for protocol := range protocols {
		_, err := s.client(t, protocol).CreateCharge(within(t), charge("k", ""))
		e, ok := errors.AsType[*connect.Error](err)
		if !ok || e.Code() != connect.CodeUnavailable {
			t.Fatalf("%s: %v, want Unavailable", protocol, err)
		}
		requireUnmarked(t, e.Meta(), e.Meta())
	}
}

// neverCompletes loses the database when an attempt is to be completed.
type neverCompletes struct{ store.Store }

func (s neverCompletes) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	found, attempt, err := s.Store.Claim(ctx, c)
	if attempt != nil {
		attempt = undone{attempt}
	}
	return found, attempt, err
}

type undone struct{ store.Attempt }

func (a undone) Complete(ctx context.Context, _ store.Record, _ bool) error {
	return errors.Join(errors.New("the database is gone"), a.Release(ctx))
}

package grpcgo_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

type (
	connectRequest  = connect.Request[chargesv1.CreateChargeRequest]
	connectResponse = connect.Response[chargesv1.CreateChargeResponse]
)

// connectCharges is a handler of connect-go's.
type connectCharges struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	create createFunc
}

func (c connectCharges) CreateCharge(ctx context.Context, req *connectRequest) (*connectResponse, error) {
	res, err := c.create(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(res.(*chargesv1.CreateChargeResponse)), nil
}

// serveConnect starts a server of connect-go's behind a guard, and returns its address. A handler around it may break calls.
func serveConnect(t *testing.T, g *idempotency.Guard, create createFunc, around func(http.Handler) http.Handler) string {
	t.Helper()
	_, handler := chargesv1connect.NewChargeServiceHandler(connectCharges{create: create}, connect.WithInterceptors(interceptor.New(g)))
	s := httptest.NewUnstartedServer(around(handler))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

type connectionKey struct{}

func unbroken(h http.Handler) http.Handler { return h }

// A key is one key: a call that was made on a server of connect-go's is replayed by one of grpc-go's, and the other way
// round, with equal message, status and metadata.
func TestOneKeyOnBothServers(t *testing.T) {
	ok := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			info.ResponseHeader().Set("X-Raw-Bin", connect.EncodeBinaryHeader([]byte{0, 255}))
			info.ResponseTrailer().Set("X-Cost", "1")
			return created("ch_1"), nil
		}
		return created("ch_1"), set(ctx, metadata.Pairs("x-raw-bin", "\x00\xff"), metadata.Pairs("x-cost", "1"))
	}
	fails := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		if _, ok := connect.CallInfoForHandlerContext(ctx); ok {
			e := connect.NewError(connect.CodeNotFound, nil)
			e.Meta().Set("X-Cost", "1")
			e.Meta().Set("X-Raw-Bin", connect.EncodeBinaryHeader([]byte{0, 255}))
			return nil, e
		}
		if err := set(ctx, nil, metadata.Pairs("x-cost", "1", "x-raw-bin", "\x00\xff")); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.NotFound, "")
	}
	for name, handler := range map[string]createFunc{"a message": ok, "an error": fails} {
		t.Run(name, func(t *testing.T) {
			g := backends["leased"](t).guard(t)
			onConnect, onGRPC := dial(t, serveConnect(t, g, handler, unbroken)), guarded(t, g, handler)
			for key, order := range map[string][]conn{"k-1": {onConnect, onGRPC}, "k-2": {onGRPC, onConnect}} {
				first := order[0].create(within(t), key, "")
				replay, marked := order[1].create(within(t), key, "").unmarkedAnywhere()
				if !marked || replay.status().Code() != first.status().Code() || replay.status().Message() != first.status().Message() {
					t.Errorf("%s: marked %v, %v, want %v", key, marked, replay.err, first.err)
				}
				for _, name := range []string{"x-raw-bin", "x-cost"} {
					got, want := replay.union()[name], first.union()[name]
					if len(want) != 1 || !slices.Equal(got, want) {
						t.Errorf("%s: %s is %q, want %q", key, name, got, want)
					}
				}
			}
		})
	}
}

// A server of connect-go's sends a header with its refusals, which grpc-go's own policy does not retry. The interceptor
// does.
func TestClientOfAConnectServer(t *testing.T) {
	for name, opts := range map[string][]grpc.DialOption{
		"policy":      {grpc.WithDefaultServiceConfig(patient)},
		"interceptor": {retrying(t)},
	} {
		t.Run(name, func(t *testing.T) {
			first := newHeld()
			endFirst := idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
				if e.Outcome == idempotency.InProgress {
					close(first.goOn)
					a := <-first.answered
					a.mustSucceed(t, "ch_1", false)
				}
			})
			address := serveConnect(t, backends["memory"](t).guard(t, endFirst), first.handle, unbroken)
			first.start(t, dial(t, address))
			a := dial(t, address, opts...).create(client.WithKey(within(t), "k"), keyIf(name == "policy"), "one")
			if name == "policy" {
				a.mustBeRefused(t, codes.Aborted, idempotency.ReasonKeyInProgress)
			} else {
				a.mustSucceed(t, "ch_1", true)
			}
		})
	}
}

// keyIf is the key for a client that makes none.
func keyIf(own bool) string {
	if own {
		return "k"
	}
	return ""
}

// An answer that breaks off, with its stream or with the connection, is asked for again, and then is a replay.
func TestClientLosesTheAnswer(t *testing.T) {
	for name, lose := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"all of it": func(_ http.ResponseWriter, r *http.Request, h http.Handler) {
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		},
		"all but the header": func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			h.ServeHTTP(headerAlone{w}, r)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		},
		"with the connection": func(_ http.ResponseWriter, r *http.Request, h http.Handler) {
			h.ServeHTTP(httptest.NewRecorder(), r)
			if err := r.Context().Value(connectionKey{}).(net.Conn).Close(); err != nil {
				t.Error(err)
			}
		},
		"its trailer": func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			h.ServeHTTP(httptest.NewRecorder(), r)
			w.Header().Set("Content-Type", "application/grpc")
			if _, err := io.WriteString(w, "\x00\x00\x00\x00\x00"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			address := serveConnect(t, backends["memory"](t).guard(t), respond, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if calls.Add(1) > 1 {
						h.ServeHTTP(w, r)
						return
					}
					lose(w, r, h)
				})
			})
			dial(t, address, retrying(t)).create(within(t), "", "").mustSucceed(t, "ch_1", true)
			if calls.Load() != 2 {
				t.Errorf("%d attempts, want two", calls.Load())
			}
		})
	}
}

// headerAlone is an answer of which the header alone goes out.
type headerAlone struct{ http.ResponseWriter }

func (headerAlone) Write(b []byte) (int, error) { return len(b), nil }

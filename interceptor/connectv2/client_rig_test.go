package connectv2_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
)

// retrier comes back soon, so that tests are quick.
func retrier(t *testing.T, opts ...client.Option) *client.Retrier {
	t.Helper()
	r, err := client.New(append([]client.Option{client.WithBackoff(time.Millisecond, time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// retrying is a client with the interceptor, and with others inside of it.
func (s server) retrying(t *testing.T, protocol string, r *client.Retrier, inner ...connect.ClientInterceptor) caller {
	t.Helper()
	return over(s.transport(t, protocol), append([]connect.ClientInterceptor{connectv2.NewClientInterceptor(r)}, inner...)...)
}

func over(transport connect.Transport, interceptors ...connect.ClientInterceptor) caller {
	c := connect.NewClient(transport, interceptors...)
	return caller{ChargeServiceClient: chargesv1connect.NewChargeServiceClient(c), raw: c}
}

// arrivals are the calls that have come to a server.
type arrivals struct {
	mu   sync.Mutex
	keys []string // a key for each call; "" where it has none
	last map[string][]string
}

// see is an interceptor that stands before all others.
func (a *arrivals) see(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		info, _ := connect.CallInfoForServerContext(ctx)
		a.mu.Lock()
		a.keys = append(a.keys, info.RequestHeader().Get("Idempotency-Key"))
		a.last = plain(info.RequestHeader())
		a.mu.Unlock()
		return next(ctx, spec, stream)
	}
}

// failing is an interceptor that fails the first n calls.
func failing(n int32, fail func(*connect.CallInfo) error) connect.ServerInterceptor {
	var calls atomic.Int32
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			if calls.Add(1) > n {
				return next(ctx, spec, stream)
			}
			info, _ := connect.CallInfoForServerContext(ctx)
			return fail(info)
		}
	}
}

func unavailable(*connect.CallInfo) error {
	return connect.NewError(connect.CodeUnavailable, "not now")
}

// watched is a guarded server that tells what comes to it; its first calls fail.
func watched(t *testing.T, failures int32, fail func(*connect.CallInfo) error) (server, *arrivals) {
	t.Helper()
	seen := new(arrivals)
	return guarded(t, backends["memory"](t).guard(t), respond, seen.see, failing(failures, fail)), seen
}

// attempts is an interceptor of a client that counts attempts.
func attempts(n *atomic.Int32) connect.ClientInterceptor {
	return func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			n.Add(1)
			return next(ctx, spec)
		}
	}
}

type connectionKey struct{}

// cutOnce serves a server, and cuts the connection under the first answer, when so many of the answer's bytes are out.
// Nothing of the answer is out where that is negative: not its header either.
func cutOnce(t *testing.T, inner *connect.Server, after int, cut func(net.Conn)) string {
	t.Helper()
	mux := http.NewServeMux()
	connecthttp.Mount(mux, inner)
	var calls atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
		switch {
		case calls.Add(1) > 1:
			mux.ServeHTTP(w, r)
		case after < 0:
			mux.ServeHTTP(httptest.NewRecorder(), r)
			cut(conn)
		default:
			mux.ServeHTTP(&cutWriter{ResponseWriter: w, left: after, cut: func() { cut(conn) }}, r)
			if err := http.NewResponseController(w).Flush(); err == nil {
				cut(conn) // in place of what tells that the answer is whole
			}
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// cutWriter lets some of the answer out.
type cutWriter struct {
	http.ResponseWriter
	left int
	cut  func()
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	out := min(w.left, len(b))
	n, err := w.ResponseWriter.Write(b[:out])
	if w.left -= n; err != nil || out == len(b) {
		return n, err
	}
	if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
		return n, err
	}
	w.cut()
	return n, errors.New("the connection is cut")
}

func httpClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

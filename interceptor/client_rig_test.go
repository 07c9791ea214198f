package interceptor_test

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

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// retrier comes back soon, so that tests are quick.
func retrier(t testing.TB, opts ...client.Option) *client.Retrier {
	t.Helper()
	r, err := client.New(append([]client.Option{client.WithBackoff(time.Millisecond, time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// retrying is a client with the interceptor, and with others inside of it.
func (s server) retrying(t testing.TB, protocol string, r *client.Retrier, inner ...connect.Interceptor) chargesv1connect.ChargeServiceClient {
	t.Helper()
	return chargesv1connect.NewChargeServiceClient(httpClient(t, true), s.URL, append([]connect.ClientOption{
		connect.WithInterceptors(append([]connect.Interceptor{interceptor.NewClient(r)}, inner...)...),
	}, protocols[protocol]...)...)
}

func httpClient(t testing.TB, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// arrivals are the calls that have come to a server.
type arrivals struct {
	mu   sync.Mutex
	keys []string // a key for each call; "" where it has none
	last http.Header
}

// see is an interceptor that stands before all others.
func (a *arrivals) see(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		a.mu.Lock()
		a.keys = append(a.keys, req.Header().Get("Idempotency-Key"))
		a.last = req.Header().Clone()
		a.mu.Unlock()
		return next(ctx, req)
	}
}

// failing is an interceptor that stands before all others; it fails the first n calls.
func failing(n int32, fail func() error) connect.UnaryInterceptorFunc {
	var calls atomic.Int32
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if calls.Add(1) <= n {
				return nil, fail()
			}
			return next(ctx, req)
		}
	}
}

func unavailable() error { return connect.NewError(connect.CodeUnavailable, errors.New("not now")) }

type connectionKey struct{}

// cutOnce serves a handler, and cuts the connection under the first answer, when so many of the answer's bytes are out.
// Nothing of the answer is out where that is negative: not its header either.
func cutOnce(t *testing.T, h http.Handler, after int, cut func(net.Conn)) server {
	t.Helper()
	var calls atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
		switch {
		case calls.Add(1) > 1:
			h.ServeHTTP(w, r)
		case after < 0:
			h.ServeHTTP(httptest.NewRecorder(), r)
			cut(conn)
		default:
			h.ServeHTTP(&cutWriter{ResponseWriter: w, left: after, cut: func() { cut(conn) }}, r)
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
	return server{s}
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

// attempts is an interceptor of a client that tells of each attempt's end.
func attempts(ended func(connect.AnyResponse, error)) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			res, err := next(ctx, req)
			ended(res, err)
			return res, err
		}
	}
}

func refund() refundRequest { return connect.NewRequest(&chargesv1.RefundChargeRequest{Id: "ch_1"}) }

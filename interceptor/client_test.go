package interceptor_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1simple"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// watched is a guarded server that tells what comes to it; its first calls fail.
func watched(t *testing.T, failures int32, fail func() error) (server, *arrivals) {
	t.Helper()
	seen := new(arrivals)
	svc := service{create: respond, refund: func(context.Context, refundRequest) (refundResponse, error) {
		return connect.NewResponse(new(chargesv1.RefundChargeResponse)), nil
	}}
	return guarded(t, backends["memory"](t).guard(t), svc, connect.UnaryInterceptorFunc(seen.see), failing(failures, fail)), seen
}

// Each call has a key, the same for all of its attempts, over each protocol; a request that is sent once more is another call.
func TestClientKeys(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s, seen := watched(t, 2, unavailable)
			c := s.retrying(t, protocol, retrier(t))
			req := charge("", "")
			for range 2 {
				if _, err := c.CreateCharge(within(t), req); err != nil {
					t.Fatal(err)
				}
			}
			if len(seen.keys) != 4 || seen.keys[0] == "" || len(slices.Compact(slices.Clone(seen.keys))) != 2 || seen.keys[2] != seen.keys[0] {
				t.Errorf("sent with %q, want one key three times, then another", seen.keys)
			}
		})
	}
}

// A key that the caller brings, in whichever way, goes out as it is, with each attempt.
func TestClientSendsTheCallersKey(t *testing.T) {
	tests := map[string]func(t *testing.T) (context.Context, createRequest){
		"in the request": func(t *testing.T) (context.Context, createRequest) { return within(t), charge("order-1", "") },
		"in the request, in lower case": func(t *testing.T) (context.Context, createRequest) {
			req := charge("", "")
			req.Header()["idempotency-key"] = []string{"order-1"}
			return within(t), req
		},
		"by hand": func(t *testing.T) (context.Context, createRequest) {
			req := charge("", "")
			if err := interceptor.SetKey(req.Header(), "order-1"); err != nil {
				t.Fatal(err)
			}
			return within(t), req
		},
		"in the context": func(t *testing.T) (context.Context, createRequest) {
			return client.WithKey(within(t), "order-1"), charge("", "")
		},
		"in the call info": func(t *testing.T) (context.Context, createRequest) {
			ctx, info := connect.NewClientContext(within(t))
			info.RequestHeader().Set("idempotency-key", "order-1")
			return ctx, charge("", "")
		},
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			s, seen := watched(t, 1, unavailable)
			ctx, req := call(t)
			if _, err := s.retrying(t, "connect proto", retrier(t)).CreateCharge(ctx, req); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(seen.keys, []string{"order-1", "order-1"}) {
				t.Errorf("sent with %q, want the caller's key twice", seen.keys)
			}
		})
	}
}

// A context's key is not shared with a second call, which is not sent.
func TestClientDoesNotShareTheContextsKey(t *testing.T) {
	s, seen := watched(t, 0, unavailable)
	c := s.retrying(t, "grpc", retrier(t))
	ctx := client.WithKey(within(t), "order-1")
	if _, err := c.CreateCharge(ctx, charge("", "")); err != nil {
		t.Fatal(err)
	}
	_, err := c.RefundCharge(ctx, refund())
	if !errors.Is(err, client.ErrKeyUsed) || connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the second call: %v, want InvalidArgument and %v", err, client.ErrKeyUsed)
	}
	if !slices.Equal(seen.keys, []string{"order-1"}) {
		t.Errorf("sent with %q, want the first call alone", seen.keys)
	}
}

// inProcess is a transport that runs the handler with the client's own context.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	p.handler.ServeHTTP(rec, req)
	return rec.Result(), nil
}

// further is a service whose handlers make a further call, with the context that they get.
type further struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	call func(context.Context) error
}

func (f further) CreateCharge(ctx context.Context, _ createRequest) (createResponse, error) {
	return created("ch_1"), f.call(ctx)
}

func (f further) GetCharge(ctx context.Context, _ *connect.Request[chargesv1.GetChargeRequest]) (*connect.Response[chargesv1.GetChargeResponse], error) {
	return connect.NewResponse(new(chargesv1.GetChargeResponse)), f.call(ctx)
}

func (f further) ListCharges(ctx context.Context, _ listRequest, _ listStream) error {
	return f.call(ctx)
}

// A handler that gets the client's context, from whatever kind of call, makes calls with keys of their own.
func TestClientHidesTheContextsKeyFromHandlers(t *testing.T) {
	calls := map[string]func(context.Context, chargesv1connect.ChargeServiceClient) error{
		"the call itself": func(ctx context.Context, c chargesv1connect.ChargeServiceClient) error {
			_, err := c.CreateCharge(ctx, charge("", ""))
			return err
		},
		"a call that reads": func(ctx context.Context, c chargesv1connect.ChargeServiceClient) error {
			_, err := c.GetCharge(ctx, connect.NewRequest(new(chargesv1.GetChargeRequest)))
			return err
		},
		"a stream": list,
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			s, seen := watched(t, 0, unavailable)
			elsewhere := s.retrying(t, "grpc", retrier(t))
			_, handler := chargesv1connect.NewChargeServiceHandler(further{call: func(ctx context.Context) error {
				_, err := elsewhere.RefundCharge(ctx, refund())
				return err
			}})
			c := chargesv1connect.NewChargeServiceClient(&http.Client{Transport: inProcess{handler}}, "http://in.process",
				connect.WithInterceptors(interceptor.NewClient(retrier(t))))
			if err := call(client.WithKey(within(t), "order-1"), c); err != nil {
				t.Fatal(err)
			}
			if len(seen.keys) != 1 || seen.keys[0] == "" || seen.keys[0] == "order-1" {
				t.Errorf("the handler's call was sent with %q, want a new key", seen.keys)
			}
		})
	}
}

// list reads a stream to its end.
func list(ctx context.Context, c chargesv1connect.ChargeServiceClient) error {
	stream, err := c.ListCharges(ctx, connect.NewRequest(new(chargesv1.ListChargesRequest)))
	if err != nil {
		return err
	}
	for stream.Receive() {
	}
	return errors.Join(stream.Err(), stream.Close())
}

// Where keys are turned off for a call it is sent once, without one.
func TestClientTurnedOff(t *testing.T) {
	s, seen := watched(t, 1, unavailable)
	_, err := s.retrying(t, "grpc", retrier(t)).CreateCharge(client.WithoutKey(within(t)), charge("", ""))
	if connect.CodeOf(err) != connect.CodeUnavailable || !slices.Equal(seen.keys, []string{""}) {
		t.Errorf("%v, sent with %q; want unavailable, sent once without a key", err, seen.keys)
	}
}

// Procedures without side effects pass by, as a GET where that is asked for, and so do streams.
func TestClientPassesReadsBy(t *testing.T) {
	s, seen := watched(t, 0, unavailable)
	c := chargesv1connect.NewChargeServiceClient(httpClient(t, true), s.URL, connect.WithHTTPGet(),
		connect.WithInterceptors(interceptor.NewClient(retrier(t))))
	ctx := client.WithKey(within(t), "order-1") // for the call that comes last
	get := connect.NewRequest(&chargesv1.GetChargeRequest{Id: "ch_1"})
	if _, err := c.GetCharge(ctx, get); err != nil {
		t.Fatal(err)
	}
	if get.HTTPMethod() != http.MethodGet {
		t.Errorf("read with %s, want GET", get.HTTPMethod())
	}
	if err := list(ctx, c); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateCharge(ctx, charge("", "")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen.keys, []string{"", "order-1"}) {
		t.Errorf("sent with %q, want no key for the read", seen.keys)
	}
}

// A server with the client's interceptor is left alone.
func TestClientPassesServersBy(t *testing.T) {
	keys := []string{"none"}
	create := func(_ context.Context, req createRequest) (createResponse, error) {
		keys = req.Header().Values("Idempotency-Key")
		return nil, unavailable()
	}
	_, handler := chargesv1connect.NewChargeServiceHandler(service{create: create}, connect.WithInterceptors(interceptor.NewClient(retrier(t))))
	if _, err := serve(t, handler).client(t, "grpc").CreateCharge(within(t), charge("", "")); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Fatal(err)
	}
	if len(keys) != 0 {
		t.Errorf("the handler got the keys %q", keys)
	}
}

// The caller's message and header are after the call what they were before; what inner interceptors add is there once.
func TestClientLeavesTheRequestAsItWas(t *testing.T) {
	s, seen := watched(t, 2, unavailable)
	inner := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Add("X-Inner", "added")
			req.Header().Add("X-Several", "inner")
			return next(ctx, req)
		}
	})
	var before, after http.Header
	outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			before = req.Header().Clone()
			res, err := next(ctx, req)
			after = req.Header()
			return res, err
		}
	})
	c := chargesv1connect.NewChargeServiceClient(httpClient(t, true), s.URL,
		connect.WithInterceptors(outer, interceptor.NewClient(retrier(t)), inner))
	req := charge("", "one")
	req.Header().Set("X-Several", "caller")
	message := proto.CloneOf(req.Msg)
	if _, err := c.CreateCharge(within(t), req); err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(before, after, slices.Equal) || !proto.Equal(message, req.Msg) {
		t.Errorf("before: %v, %v\nafter:  %v, %v", before, message, after, req.Msg)
	}
	if len(seen.keys) != 3 || !slices.Equal(seen.last["X-Inner"], []string{"added"}) || !slices.Equal(seen.last["X-Several"], []string{"caller", "inner"}) {
		t.Errorf("the third of %d attempts came with %v, want what was added to it alone", len(seen.keys), seen.last)
	}
}

// In the simple API the call info shows the last attempt, and nothing of those before.
func TestClientCallInfoShowsTheLastAttempt(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s, _ := watched(t, 1, func() error {
				err := connect.NewError(connect.CodeUnavailable, errors.New("not now"))
				err.Meta().Set("X-Failed", "1")
				return err
			})
			c := chargesv1simple.NewChargeServiceClient(httpClient(t, true), s.URL,
				append(protocols[protocol], connect.WithInterceptors(interceptor.NewClient(retrier(t))))...)
			for _, replayed := range []bool{false, true} {
				ctx, info := connect.NewClientContext(within(t))
				if err := interceptor.SetKey(info.RequestHeader(), "order-1"); err != nil {
					t.Fatal(err)
				}
				if _, err := c.CreateCharge(ctx, charge("", "").Msg); err != nil {
					t.Fatal(err)
				}
				header, trailer := info.ResponseHeader(), info.ResponseTrailer()
				if interceptor.Replayed(header) != replayed || header.Get("X-Failed") != "" || trailer.Get("X-Failed") != "" {
					t.Errorf("the call info shows %v and %v, want replayed = %v alone", header, trailer, replayed)
				}
			}
		})
	}
}

// A key that is none is not set.
func TestSetKeyFails(t *testing.T) {
	header := http.Header{"Idempotency-Key": {"before"}}
	if err := interceptor.SetKey(header, "order 1"); !errors.Is(err, client.ErrKeyInvalid) || header.Get("Idempotency-Key") != "before" {
		t.Errorf("%v, and the header is %v", err, header)
	}
}

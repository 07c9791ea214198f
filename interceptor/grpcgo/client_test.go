package grpcgo_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
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

// retrying gives a connection such a retrier's interceptor.
func retrying(t *testing.T, opts ...client.Option) grpc.DialOption {
	t.Helper()
	return grpc.WithUnaryInterceptor(grpcgo.UnaryClientInterceptor(retrier(t, opts...)))
}

// arrivals are the calls that have come to a server. The first of them fail.
type arrivals struct {
	failures []error

	mu   sync.Mutex
	keys []string // a key for each call; "" where it has none
}

// see is an interceptor that stands before all others.
func (a *arrivals) see(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys = append(a.keys, strings.Join(metadata.ValueFromIncomingContext(ctx, "idempotency-key"), "+"))
	if n := len(a.keys); n <= len(a.failures) {
		return nil, a.failures[n-1]
	}
	return handler(ctx, req)
}

// seen serves CreateCharge without a guard, and returns a client that retries.
func (a *arrivals) seen(t *testing.T, opts ...client.Option) conn {
	t.Helper()
	return dial(t, serve(t, charges(respond), a.see), retrying(t, opts...))
}

func withDetail(t *testing.T, code codes.Code, details ...protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(code, "no").WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func reason(domain, reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Domain: domain, Reason: reason}
}

// What may go away is sent again with the same key, and nothing else is.
func TestClientRetries(t *testing.T) {
	soon := &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
	for name, test := range map[string]struct {
		failure error
		again   bool
	}{
		"unavailable":          {status.Error(codes.Unavailable, "no"), true},
		"in progress":          {withDetail(t, codes.Aborted, reason(idempotency.Domain, idempotency.ReasonKeyInProgress)), true},
		"a conflict":           {withDetail(t, codes.Aborted, reason(idempotency.Domain, idempotency.ReasonTxConflict), soon), true},
		"another's reason":     {withDetail(t, codes.Aborted, reason("example.com", idempotency.ReasonTxConflict)), false},
		"aborted":              {status.Error(codes.Aborted, "no"), false},
		"exhausted, for now":   {withDetail(t, codes.ResourceExhausted, soon), true},
		"exhausted":            {status.Error(codes.ResourceExhausted, "no"), false},
		"internal":             {status.Error(codes.Internal, "no"), false},
		"cancelled":            {context.Canceled, false},
		"an answer":            {status.Error(codes.NotFound, "no"), false},
		"an error without one": {errors.New("no"), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &arrivals{failures: []error{test.failure, test.failure}}
			got := a.seen(t).create(within(t), "", "")
			if !test.again {
				if got.err == nil || len(a.keys) != 1 || a.keys[0] == "" {
					t.Errorf("got %v after keys %q, want the failure of one keyed attempt", got.err, a.keys)
				}
				return
			}
			got.mustSucceed(t, "ch_1", false)
			if len(a.keys) != 3 || a.keys[0] == "" || len(slices.Compact(a.keys)) != 1 {
				t.Errorf("keys %q, want one, three times", a.keys)
			}
		})
	}
}

// Each logical call has a key of its own, however often it is sent.
func TestClientMakesAKeyForEachCall(t *testing.T) {
	a := new(arrivals)
	c := a.seen(t)
	for range 3 {
		c.create(within(t), "", "").mustSucceed(t, "ch_1", false)
	}
	if keys := slices.Compact(slices.Sorted(slices.Values(a.keys))); len(keys) != 3 || keys[0] == "" {
		t.Errorf("keys %q, want three", a.keys)
	}
}

// A key of the caller's goes out as it is, and the caller's context is what it was.
func TestClientKeepsTheCallersKey(t *testing.T) {
	a := &arrivals{failures: []error{status.Error(codes.Unavailable, "no")}}
	c := a.seen(t)
	ctx, err := grpcgo.SetKey(metadata.AppendToOutgoingContext(within(t), "x-a", "1", "idempotency-key", "old"), "order-1")
	if err != nil {
		t.Fatal(err)
	}
	c.create(ctx, "", "").mustSucceed(t, "ch_1", false)
	md, _ := metadata.FromOutgoingContext(ctx)
	want := metadata.MD{"x-a": {"1"}, "idempotency-key": {"order-1"}}
	if !slices.Equal(a.keys, []string{"order-1", "order-1"}) || !maps.EqualFunc(md, want, slices.Equal) {
		t.Errorf("keys %q, and then %v in the caller's context", a.keys, md)
	}
}

// A context brings its key to one call, which has it in the attempts alone.
func TestClientTakesTheContextsKey(t *testing.T) {
	a := &arrivals{failures: []error{status.Error(codes.Unavailable, "no")}}
	c := a.seen(t)
	ctx := client.WithKey(within(t), "order-1")
	c.create(ctx, "", "").mustSucceed(t, "ch_1", false)
	again := c.create(ctx, "", "")
	notSent, ok := errors.AsType[*client.NotSentError](again.err)
	if !ok || !errors.Is(again.err, client.ErrKeyUsed) || status.Code(again.err) != codes.InvalidArgument || again.status().Message() != notSent.Error() {
		t.Errorf("the second call got %v (%T)", again.err, again.err)
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok || !slices.Equal(a.keys, []string{"order-1", "order-1"}) {
		t.Errorf("keys %q, and then %v in the caller's context", a.keys, md)
	}
}

// A call that has no key is sent once: a procedure that only reads, one that is left out, and one for which keys are off.
func TestClientWithoutKey(t *testing.T) {
	no := status.Error(codes.Unavailable, "no")
	reads := func(c conn) answer {
		return c.call(within(t), get, new(chargesv1.GetChargeRequest), new(chargesv1.GetChargeResponse))
	}
	writes := func(c conn) answer { return c.create(within(t), "", "") }
	off := func(c conn) answer { return c.create(client.WithoutKey(within(t)), "", "") }
	for name, test := range map[string]struct {
		call func(conn) answer
		opts []client.Option
	}{
		"reads":    {call: reads},
		"off":      {call: off},
		"left out": {writes, []client.Option{client.WithProcedures(func(p string) bool { return p != create })}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &arrivals{failures: []error{no}}
			if got := test.call(a.seen(t, test.opts...)); got.status().Code() != codes.Unavailable || !slices.Equal(a.keys, []string{""}) {
				t.Errorf("got %v after keys %q, want the failure of one attempt without a key", got.err, a.keys)
			}
		})
	}
}

// A retry that the server puts behind the caller's deadline is not begun: the answer comes at once.
func TestClientKeepsTheDeadline(t *testing.T) {
	later := withDetail(t, codes.Unavailable, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	for name, after := range map[string]metadata.MD{
		"RetryInfo":   nil,
		"retry-after": metadata.Pairs("retry-after", "60"),
		"pushback":    metadata.Pairs("grpc-retry-pushback-ms", "60000"),
		"never":       metadata.Pairs("grpc-retry-pushback-ms", "-1"),
	} {
		for _, in := range []func(context.Context, metadata.MD) error{grpc.SetHeader, grpc.SetTrailer} {
			t.Run(name, func(t *testing.T) {
				failure := status.Error(codes.Unavailable, "no")
				if after == nil {
					failure = later
				}
				a := &arrivals{failures: []error{failure}}
				say := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if err := in(ctx, after); err != nil {
						t.Error(err)
					}
					return handler(ctx, req)
				}
				got := dial(t, serve(t, charges(respond), say, a.see), retrying(t)).create(within(t), "", "")
				if got.status().Code() != codes.Unavailable || len(a.keys) != 1 {
					t.Errorf("got %v after %d attempts, want the failure of one", got.err, len(a.keys))
				}
			})
		}
	}
}

// A client that meets its key in progress, under a guard, comes back for the replay.
func TestClientMeetsTheFirstCall(t *testing.T) {
	for name, makeBackend := range backends {
		t.Run(name, func(t *testing.T) {
			first := newHeld()
			endFirst := idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
				if e.Outcome == idempotency.InProgress {
					close(first.goOn)
					a := <-first.answered
					a.mustSucceed(t, "ch_1", false)
				}
			})
			address := serve(t, charges(first.handle), interceptorOf(makeBackend(t).guard(t, endFirst)))
			first.start(t, dial(t, address))
			dial(t, address, retrying(t)).create(client.WithKey(within(t), "k"), "", "one").mustSucceed(t, "ch_1", true)
		})
	}
}

// What an attempt has left in the caller's options is not taken for the next one's, and the options are the caller's own.
func TestClientsOptionsAreTheCallers(t *testing.T) {
	failed := status.Error(codes.Unavailable, "no")
	attempts := 0
	invoke := func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		if attempts++; attempts > 1 {
			return failed // before there is a stream: grpc writes no header and no trailer
		}
		for _, opt := range opts {
			switch o := opt.(type) {
			case grpc.HeaderCallOption:
				*o.HeaderAddr = metadata.Pairs("x-attempt", "1")
			case grpc.TrailerCallOption:
				*o.TrailerAddr = metadata.Pairs("x-attempt", "1")
			}
		}
		return failed
	}
	var header metadata.MD
	trailer := metadata.Pairs("x-before", "1")
	opts := append(make([]grpc.CallOption, 0, 8), grpc.Header(&header), grpc.Trailer(&trailer))
	intercept := grpcgo.UnaryClientInterceptor(retrier(t, client.WithMaxAttempts(2)))
	err := intercept(within(t), create, new(chargesv1.CreateChargeRequest), new(chargesv1.CreateChargeResponse), nil, invoke, opts...)
	if !errors.Is(err, failed) || attempts != 2 || header != nil || !maps.EqualFunc(trailer, metadata.Pairs("x-before", "1"), slices.Equal) {
		t.Errorf("%v after %d attempts, header %v, trailer %v", err, attempts, header, trailer)
	}
	if beyond := opts[:cap(opts)][2:]; slices.ContainsFunc(beyond, func(o grpc.CallOption) bool { return o != nil }) {
		t.Errorf("the caller's options go on with %v", beyond)
	}
}

// A key that is none is not set.
func TestSetKey(t *testing.T) {
	if _, err := grpcgo.SetKey(t.Context(), "two words"); !errors.Is(err, client.ErrKeyInvalid) {
		t.Errorf("got %v", err)
	}
	ctx, err := grpcgo.SetKey(t.Context(), "order-1")
	if err != nil {
		t.Fatal(err)
	}
	if md, _ := metadata.FromOutgoingContext(ctx); !slices.Equal(md["idempotency-key"], []string{"order-1"}) {
		t.Errorf("set %v", md)
	}
}

// A dynamic request's procedure is known by its file, so that one that reads gets no key.
func TestClientOfDynamicMessages(t *testing.T) {
	service := newBank(t, bankFiles(t, true))
	a := new(arrivals)
	c := dial(t, serve(t, service.ServiceDesc, a.see), retrying(t))
	for _, procedure := range []string{look, pay} {
		got := c.call(within(t), procedure, withID(service.request, "r"), proto.Clone(withID(service.response, "")))
		if got.err != nil {
			t.Fatal(got.err)
		}
	}
	if len(a.keys) != 2 || a.keys[0] != "" || a.keys[1] == "" {
		t.Errorf("keys %q, want none and one", a.keys)
	}
}

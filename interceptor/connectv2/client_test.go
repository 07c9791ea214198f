package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
)

// Each call has a key, the same for all of its attempts, over each protocol; a context that is used once more is another
// call's.
func TestClientKeys(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s, seen := watched(t, 2, unavailable)
			c := s.retrying(t, protocol, retrier(t))
			ctx, _ := connect.NewClientContext(within(t))
			for range 2 {
				if _, err := c.CreateCharge(ctx, request("")); err != nil {
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
	tests := map[string]func(t *testing.T) context.Context{
		"in the call info": func(t *testing.T) context.Context {
			ctx, _ := keyedContext(t, "order-1")
			return ctx
		},
		"by hand": func(t *testing.T) context.Context {
			ctx, info := connect.NewClientContext(within(t))
			if err := connectv2.SetKey(info.RequestHeader(), "order-1"); err != nil {
				t.Fatal(err)
			}
			return ctx
		},
		"in the context": func(t *testing.T) context.Context { return client.WithKey(within(t), "order-1") },
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			s, seen := watched(t, 1, unavailable)
			if _, err := s.retrying(t, "connect proto", retrier(t)).CreateCharge(call(t), request("")); err != nil {
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
	if _, err := c.CreateCharge(ctx, request("")); err != nil {
		t.Fatal(err)
	}
	_, err := c.RefundCharge(ctx, new(chargesv1.RefundChargeRequest))
	if !errors.Is(err, client.ErrKeyUsed) || connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the second call: %v, want InvalidArgument and %v", err, client.ErrKeyUsed)
	}
	if !slices.Equal(seen.keys, []string{"order-1"}) {
		t.Errorf("sent with %q, want the first call alone", seen.keys)
	}
}

// A handler that gets the client's context makes calls with keys of their own.
func TestClientHidesTheContextsKeyFromHandlers(t *testing.T) {
	s, seen := watched(t, 0, unavailable)
	further := s.retrying(t, "grpc", retrier(t))
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		_, err := further.RefundCharge(ctx, new(chargesv1.RefundChargeRequest))
		return created("ch_1"), err
	}
	inner := connect.NewServer()
	chargesv1connect.RegisterChargeServiceHandler(inner, service{create: create})
	c := server{inner: inner}.retrying(t, inProcess, retrier(t))
	if _, err := c.CreateCharge(client.WithKey(within(t), "order-1"), request("")); err != nil {
		t.Fatal(err)
	}
	if len(seen.keys) != 1 || seen.keys[0] == "" || seen.keys[0] == "order-1" {
		t.Errorf("the handler's call was sent with %q, want a new key", seen.keys)
	}
}

// Where keys are turned off for a call it is sent once, without one.
func TestClientTurnedOff(t *testing.T) {
	s, seen := watched(t, 1, unavailable)
	_, err := s.retrying(t, "grpc", retrier(t)).CreateCharge(client.WithoutKey(within(t)), request(""))
	if connect.CodeOf(err) != connect.CodeUnavailable || !slices.Equal(seen.keys, []string{""}) {
		t.Errorf("%v, sent with %q; want unavailable, sent once without a key", err, seen.keys)
	}
}

// Procedures without side effects and streams pass by: they get no key, and leave the context's to the call that it is for.
func TestClientPassesReadsBy(t *testing.T) {
	s, seen := watched(t, 0, unavailable)
	c := s.retrying(t, "connect proto", retrier(t))
	ctx := client.WithKey(within(t), "order-1")
	if _, err := c.GetCharge(ctx, new(chargesv1.GetChargeRequest)); err != nil {
		t.Fatal(err)
	}
	stream, err := c.ListCharges(ctx, new(chargesv1.ListChargesRequest))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Receive()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := c.CreateCharge(ctx, request("")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen.keys, []string{"", "", "order-1"}) {
		t.Errorf("sent with %q, want no key for the reads", seen.keys)
	}
}

// A read that fails is not sent again.
func TestClientDoesNotRetryReads(t *testing.T) {
	s, seen := watched(t, 1, unavailable)
	if _, err := s.retrying(t, "grpc", retrier(t)).GetCharge(within(t), new(chargesv1.GetChargeRequest)); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v, want unavailable", err)
	}
	if len(seen.keys) != 1 {
		t.Errorf("sent %d times, want once", len(seen.keys))
	}
}

// The caller's message and header are after the call what they were before; what inner interceptors add is there once.
func TestClientLeavesTheRequestAsItWas(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s, seen := watched(t, 2, unavailable)
			inner := func(next connect.ClientFunc) connect.ClientFunc {
				return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
					info, _ := connect.CallInfoForClientContext(ctx)
					info.RequestHeader().Add("X-Inner", "added")
					info.RequestHeader().Add("X-Several", "inner")
					return next(ctx, spec)
				}
			}
			ctx, info := connect.NewClientContext(within(t))
			info.RequestHeader().Set("X-Several", "caller")
			req := request("one")
			if _, err := s.retrying(t, protocol, retrier(t), inner).CreateCharge(ctx, req); err != nil {
				t.Fatal(err)
			}
			header := maps.Collect(info.RequestHeader().All())
			if !maps.EqualFunc(header, map[string][]string{"X-Several": {"caller"}}, slices.Equal) || !proto.Equal(req, request("one")) {
				t.Errorf("after the call the header is %v and the message %v", header, req)
			}
			if len(seen.keys) != 3 || !slices.Equal(seen.last["X-Inner"], []string{"added"}) ||
				!slices.Equal(seen.last["X-Several"], []string{"caller", "inner"}) {
				t.Errorf("the third of %d attempts came with %v, want what was added to it alone", len(seen.keys), seen.last)
			}
		})
	}
}

// The caller's call info shows the last attempt as an ordinary call's would, nothing of those before, and whether the answer
// is a replay.
func TestClientCallInfoShowsTheLastAttempt(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s, _ := watched(t, 1, func(info *connect.CallInfo) error {
				info.ResponseHeader().Set("X-Failed", "1")
				info.ResponseTrailer().Set("X-Failed-Trailer", "1")
				return unavailable(info)
			})
			c := s.retrying(t, protocol, retrier(t))
			for _, replayed := range []bool{false, true} {
				ctx, info := keyedContext(t, "order-1")
				res, err := c.CreateCharge(ctx, request(""))
				a := answerOf(t, info, res, err)
				a.mustBe(t, "ch_1")
				if connectv2.Replayed(info) != replayed || a.values("X-Failed") != nil || a.values("X-Failed-Trailer") != nil {
					t.Errorf("the call info shows %+v, want replayed = %v alone", a, replayed)
				}
				plain, plainInfo := keyedContext(t, "order-1")
				if _, err := s.client(t, protocol).CreateCharge(plain, request("")); err != nil {
					t.Fatal(err)
				}
				if info.Spec != plainInfo.Spec || info.Protocol != plainInfo.Protocol || info.Codec != plainInfo.Codec || info.PeerAddr != plainInfo.PeerAddr ||
					info.RequestEncoding != plainInfo.RequestEncoding || info.ResponseEncoding != plainInfo.ResponseEncoding ||
					info.SendStats != plainInfo.SendStats || info.ReceiveStats != plainInfo.ReceiveStats ||
					(info.TransportInfo == nil) != (plainInfo.TransportInfo == nil) {
					t.Errorf("the call info is %+v, want %+v", info, plainInfo)
				}
			}
		})
	}
}

// Errors say whether they are replayed, over each protocol, and are the server's own.
func TestErrorReplayed(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			declined := func(context.Context, createRequest) (createResponse, error) { return nil, errorWithDetails(t) }
			s := guarded(t, backends["memory"](t).guard(t), declined)
			want := s.client(t, protocol).charge(t, "", "")
			c := s.retrying(t, protocol, retrier(t))
			for _, replayed := range []bool{false, true} {
				ctx, info := keyedContext(t, "order-1")
				_, err := c.CreateCharge(ctx, request(""))
				if connectv2.Replayed(info) != replayed {
					t.Errorf("%v: replayed = %v, want %v", err, !replayed, replayed)
				}
				got := answerOf(t, info, nil, err)
				if got.replayed() != replayed || !got.equal(want) {
					t.Errorf("the error is %+v, want %+v", got, want)
				}
			}
		})
	}
}

// Many goroutines share a client: each call's two attempts have its own key.
func TestClientIsShared(t *testing.T) {
	seen := new(arrivals)
	var here sync.Map // key → it has been here
	flaky := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			info, _ := connect.CallInfoForServerContext(ctx)
			if _, again := here.LoadOrStore(info.RequestHeader().Get("Idempotency-Key"), true); !again {
				return unavailable(info)
			}
			return next(ctx, spec, stream)
		}
	}
	s := guarded(t, backends["memory"](t).guard(t), respond, seen.see, flaky)
	c := s.retrying(t, "grpc", retrier(t))
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			if _, err := c.CreateCharge(within(t), request(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	sent := make(map[string]int)
	for _, key := range seen.keys {
		sent[key]++
	}
	for key, n := range sent {
		if n != 2 {
			t.Errorf("%s was sent %d times, want twice", key, n)
		}
	}
	if len(sent) != 64 {
		t.Errorf("%d keys, want 64", len(sent))
	}
}

// A key that is none is not set.
func TestSetKeyFails(t *testing.T) {
	header := new(connect.Header)
	header.Set("Idempotency-Key", "before")
	if err := connectv2.SetKey(header, "order 1"); !errors.Is(err, client.ErrKeyInvalid) || header.Get("Idempotency-Key") != "before" {
		t.Errorf("%v, and the header is %v", err, header)
	}
}

package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// Errors say whether they are replayed, over each protocol, and are the server's own.
func TestErrorReplayed(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			declined := func(context.Context, createRequest) (createResponse, error) { return nil, errorWithAll(t) }
			s := guarded(t, backends["memory"](t).guard(t), service{create: declined})
			plain, c := s.client(t, protocol), s.retrying(t, protocol, retrier(t))
			_, err := plain.CreateCharge(within(t), charge("", ""))
			want := answerOf(t, nil, err)
			for _, replayed := range []bool{false, true} {
				_, err := c.CreateCharge(client.WithKey(within(t), "order-1"), charge("", ""))
				if interceptor.ErrorReplayed(err) != replayed {
					t.Errorf("%v: replayed = %v, want %v", err, !replayed, replayed)
				}
				got := answerOf(t, nil, err)
				if got.replayed() != replayed || !got.equal(want) {
					t.Errorf("the error is %+v, want %+v", got, want)
				}
			}
		})
	}
	if interceptor.ErrorReplayed(nil) || interceptor.ErrorReplayed(errors.New("another")) {
		t.Error("no error of Connect's, and taken for a replay")
	}
}

// What is sent again is decided alike over each protocol, from what comes over the wire; the last error is handed on.
func TestClientRetries(t *testing.T) {
	refuse := func(code connect.Code, messages ...proto.Message) func() error {
		return func() error {
			e := connect.NewError(code, errors.New("no"))
			for _, m := range messages {
				d, err := connect.NewErrorDetail(m)
				if err != nil {
					return err
				}
				e.AddDetail(d)
			}
			return e
		}
	}
	with := func(err func() error, name, value string) func() error {
		return func() error {
			e := err()
			if own, ok := errors.AsType[*connect.Error](e); ok {
				own.Meta().Set(name, value)
			}
			return e
		}
	}
	ours := &errdetails.ErrorInfo{Domain: idempotency.Domain, Reason: idempotency.ReasonTxConflict}
	foreign := &errdetails.ErrorInfo{Domain: "elsewhere.example", Reason: idempotency.ReasonTxConflict}
	soon := &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
	tests := map[string]struct {
		fail     func() error
		attempts int
	}{
		"unavailable":              {unavailable, 3},
		"a conflict":               {refuse(connect.CodeAborted, ours, soon), 3},
		"aborted elsewhere":        {refuse(connect.CodeAborted, foreign, soon), 1},
		"exhausted with RetryInfo": {refuse(connect.CodeResourceExhausted, soon), 3},
		"exhausted":                {refuse(connect.CodeResourceExhausted), 1},
		"canceled by the server":   {refuse(connect.CodeCanceled), 1},
		"internal":                 {refuse(connect.CodeInternal), 1},
		"unknown":                  {func() error { return errors.New("unexpected EOF") }, 1},
		"do not come back":         {with(unavailable, "grpc-retry-pushback-ms", "-1"), 1},
		"past the deadline":        {with(unavailable, "retry-after", "3600"), 1},
	}
	for name, test := range tests {
		for protocol := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				s, seen := watched(t, 100, test.fail)
				ctx := within(t)
				_, err := s.retrying(t, protocol, retrier(t, client.WithMaxAttempts(3), client.WithMaxElapsed(24*time.Hour))).
					CreateCharge(ctx, charge("", ""))
				if len(seen.keys) != test.attempts || connect.CodeOf(err) != connect.CodeOf(test.fail()) || !connect.IsWireError(err) {
					t.Errorf("%v, sent %d times; want the server's own, sent %d times", err, len(seen.keys), test.attempts)
				}
				if ctx.Err() != nil {
					t.Error("the deadline has passed")
				}
			})
		}
	}
}

// 64 goroutines share a client: each call's two attempts have its own key.
func TestClientIsShared(t *testing.T) {
	seen := new(arrivals)
	var flaky sync.Map // key → whether it has been here
	s := guarded(t, backends["memory"](t).guard(t), service{create: respond}, connect.UnaryInterceptorFunc(seen.see),
		connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				if _, again := flaky.LoadOrStore(req.Header().Get("Idempotency-Key"), true); !again {
					return nil, unavailable()
				}
				return next(ctx, req)
			}
		}))
	c := s.retrying(t, "grpc", retrier(t))
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			if _, err := c.CreateCharge(within(t), charge("", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	attempts := make(map[string]int)
	for _, key := range seen.keys {
		attempts[key]++
	}
	for key, n := range attempts {
		if n != 2 {
			t.Errorf("%q was sent %d times, want twice", key, n)
		}
	}
	if len(attempts) != 64 {
		t.Errorf("%d keys, want 64", len(attempts))
	}
}

// A proxy's own 503, which is no RPC's answer, is Unavailable and sent again.
func TestClientRetriesWhatAProxyRefuses(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var came atomic.Int32
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				came.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			_, err := s.retrying(t, protocol, retrier(t, client.WithMaxAttempts(2))).CreateCharge(within(t), charge("", ""))
			if connect.CodeOf(err) != connect.CodeUnavailable || came.Load() != 2 {
				t.Errorf("%v, sent %d times; want unavailable, sent twice", err, came.Load())
			}
		})
	}
}

// An error that an inner interceptor hands on as a server's is an answer, whatever it was made from.
func TestClientTakesAServersErrorForAnAnswer(t *testing.T) {
	s, _ := watched(t, 0, unavailable)
	sent := 0
	inner := connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			sent++
			return nil, connect.NewWireError(connect.CodeInternal, fmt.Errorf("its own upstream: %w", io.ErrUnexpectedEOF))
		}
	})
	if _, err := s.retrying(t, "grpc", retrier(t), inner).CreateCharge(within(t), charge("", "")); connect.CodeOf(err) != connect.CodeInternal || sent != 1 {
		t.Errorf("%v, sent %d times; want internal, sent once", err, sent)
	}
}

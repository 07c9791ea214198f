package grpcgo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func interceptorOf(g *idempotency.Guard) grpc.UnaryServerInterceptor {
	return grpcgo.UnaryServerInterceptor(g)
}

// sometimesDown fails for one key, so many times.
type sometimesDown struct {
	store.Store
	failures int
}

func (s *sometimesDown) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	if c.ID.Key == "unavailable" && s.failures > 0 {
		s.failures--
		return store.Found{}, nil, errors.New("postgres://user:secret@host is down")
	}
	return s.Store.Claim(ctx, c)
}

// A client reads of each refusal its code, reason, and when to come back.
func TestRefusals(t *testing.T) {
	type sent struct{ key, description string }
	tests := map[string]struct {
		opts    []idempotency.Option
		first   *sent // before, if any
		retry   sent
		twice   bool // sends the key twice
		code    codes.Code
		reason  string
		retryIn bool
	}{
		"reused": {
			first: &sent{"k", "one"}, retry: sent{"k", "another"}, code: codes.FailedPrecondition, reason: idempotency.ReasonKeyReused,
		},
		"required": {
			opts: []idempotency.Option{idempotency.WithKeyRequired()}, code: codes.InvalidArgument, reason: idempotency.ReasonKeyRequired,
		},
		"too long": {
			retry: sent{key: strings.Repeat("k", 256)}, code: codes.InvalidArgument, reason: idempotency.ReasonKeyInvalid,
		},
		"sent twice": {
			retry: sent{key: "k"}, twice: true, code: codes.InvalidArgument, reason: idempotency.ReasonKeyInvalid,
		},
		"reply not kept": {
			opts: []idempotency.Option{idempotency.WithMaxReplySize(1)}, first: &sent{key: "k"}, retry: sent{key: "k"},
			code: codes.FailedPrecondition, reason: idempotency.ReasonReplyNotKept,
		},
		"store unavailable": {
			retry: sent{key: "unavailable"}, code: codes.Unavailable, reason: idempotency.ReasonStoreUnavailable, retryIn: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := backends["memory"](t)
			b.store = &sometimesDown{b.store, 1}
			client := guarded(t, b.guard(t, test.opts...), respond)
			if test.first != nil {
				client.create(within(t), test.first.key, test.first.description).mustSucceed(t, "ch_1", false)
			}
			ctx := within(t)
			if test.twice {
				ctx = withKey(ctx, test.retry.key)
			}
			a := client.create(ctx, test.retry.key, test.retry.description)
			a.mustBeRefused(t, test.code, test.reason)
			checkRetry(t, a, test.retryIn)
		})
	}
}

// checkRetry checks when a refused client is told to come back: in the same words everywhere, or nowhere.
func checkRetry(t *testing.T, a answer, want bool) {
	t.Helper()
	if len(a.header) > 0 {
		t.Errorf("a refusal with a header, which grpc-go does not retry: %v", a.header)
	}
	if strings.Contains(a.err.Error(), "secret") {
		t.Errorf("the client is told %v", a.err)
	}
	info := detail[*errdetails.RetryInfo](a)
	after, back := a.trailer["retry-after"], a.trailer["grpc-retry-pushback-ms"]
	if !want {
		if info != nil || len(after)+len(back) > 0 {
			t.Errorf("RetryInfo %v, retry-after %q, pushback %q; want none", info, after, back)
		}
		return
	}
	delay := info.GetRetryDelay().AsDuration()
	if info == nil || len(after) != 1 || len(back) != 1 ||
		after[0] != strconv.Itoa(int(delay.Seconds())) || back[0] != strconv.FormatInt(delay.Milliseconds(), 10) {
		t.Errorf("RetryInfo %v, retry-after %q, pushback %q; want the same in all", info, after, back)
	}
}

// held is a first call that runs until it is released.
type held struct {
	running, goOn chan struct{}
	answered      chan answer
}

func (h *held) handle(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
	close(h.running)
	select {
	case <-h.goOn:
		return created("ch_1"), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func newHeld() *held {
	return &held{running: make(chan struct{}), goOn: make(chan struct{}), answered: make(chan answer, 1)}
}

// start makes the first call with the key "k", and returns when it runs.
func (h *held) start(t *testing.T, c conn) {
	t.Helper()
	ctx := within(t)
	go func() { h.answered <- c.create(ctx, "k", "one") }()
	<-h.running
}

// While the first call runs, a retry is told to come back, within the lease, and another request meets each mode's rule.
func TestInProgress(t *testing.T) {
	for name, makeBackend := range backends {
		t.Run(name, func(t *testing.T) {
			b := makeBackend(t)
			first := newHeld()
			client := guarded(t, b.guard(t), first.handle)
			first.start(t, client)
			a := client.create(within(t), "k", "one")
			a.mustBeRefused(t, codes.Aborted, idempotency.ReasonKeyInProgress)
			checkRetry(t, a, true)
			if d := detail[*errdetails.RetryInfo](a).GetRetryDelay().AsDuration(); d > 30*time.Second {
				t.Errorf("come back in %v, want within the lease", d)
			}
			a = client.create(within(t), "k", "another")
			if b.store.Transactional() {
				a.mustBeRefused(t, codes.Aborted, idempotency.ReasonKeyInProgress)
			} else {
				a.mustBeRefused(t, codes.FailedPrecondition, idempotency.ReasonKeyReused)
			}
			close(first.goOn)
			got := <-first.answered
			got.mustSucceed(t, "ch_1", false)
			client.create(within(t), "k", "one").mustSucceed(t, "ch_1", true)
		})
	}
}

// patient is a retry policy whose own backoff would take longer than any test: only a server's pushback ends it in time.
const patient = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "100s", "maxBackoff": "100s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["ABORTED", "UNAVAILABLE"]}}]}`

// grpc-go's own retry policy takes each refusal that goes away for what it is, and comes back when it is told to.
func TestRetryPolicy(t *testing.T) {
	t.Run("in progress", func(t *testing.T) {
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
				dial(t, address, grpc.WithDefaultServiceConfig(patient)).create(within(t), "k", "one").mustSucceed(t, "ch_1", true)
			})
		}
	})
	t.Run("store unavailable", func(t *testing.T) {
		b := backends["memory"](t)
		b.store = &sometimesDown{b.store, 1}
		address := serve(t, charges(respond), interceptorOf(b.guard(t)))
		dial(t, address, grpc.WithDefaultServiceConfig(patient)).create(within(t), "unavailable", "").mustSucceed(t, "ch_1", false)
	})
	t.Run("transaction conflict", func(t *testing.T) {
		b := databases["transactional"](t)
		runs := 0
		handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			if runs++; runs < 4 {
				return nil, b.conflict(ctx)
			}
			return created("ch_4"), nil
		}
		address := serve(t, charges(handler), interceptorOf(b.guard(t)))
		dial(t, address, grpc.WithDefaultServiceConfig(patient)).create(within(t), "k", "").mustSucceed(t, "ch_4", false)
	})
}

// On the wire a refusal is one block of headers, which ends the stream: what gRPC calls trailers-only.
func TestRefusalIsTrailersOnly(t *testing.T) {
	b := backends["memory"](t)
	b.store = &sometimesDown{b.store, 1}
	address := serve(t, charges(respond), interceptorOf(b.guard(t)))
	for _, refused := range []bool{true, false} {
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+address+create, bytes.NewReader(make([]byte, 5)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Idempotency-Key": {"unavailable"}}
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(transport.CloseIdleConnections)
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			t.Fatal(err)
		}
		inHeader, inTrailer := res.Header.Get("Grpc-Status"), res.Trailer.Get("Grpc-Status")
		if refused && (inHeader != "14" || len(res.Trailer) > 0 || len(body) > 0 || res.Header.Get("Grpc-Retry-Pushback-Ms") != "1000") {
			t.Errorf("the refusal is not trailers-only: header %v, trailer %v, body %q", res.Header, res.Trailer, body)
		}
		if !refused && (inHeader != "" || inTrailer != "0") {
			t.Errorf("the answer after it: header %v, trailer %v", res.Header, res.Trailer)
		}
	}
}

// A status of the scope function reaches the client as it is, and no other error does.
func TestScopeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want codes.Code
		text string
	}{
		"a status":             {status.Error(codes.Unauthenticated, "who are you?"), codes.Unauthenticated, "who are you?"},
		"a status that is OK":  {okError{}, codes.Internal, "idempotency: the call's scope could not be told"},
		"any other":            {errors.New("the tenants' table is down"), codes.Internal, "idempotency: the call's scope could not be told"},
		"the guard's own kind": {&idempotency.Error{Code: 7, Message: "not yours"}, codes.PermissionDenied, "not yours"},
	} {
		t.Run(name, func(t *testing.T) {
			b := backends["memory"](t)
			b.store = neverClaimed{b.store, t}
			scope := func(context.Context, idempotency.Call) (string, error) { return "", test.err }
			a := guarded(t, b.guard(t, idempotency.WithScope(scope)), nil).create(within(t), "k", "")
			if a.status().Code() != test.want || a.status().Message() != test.text {
				t.Errorf("refused with %v, want %v, %s", a.err, test.want, test.text)
			}
		})
	}
}

// okError is an error whose status is none.
type okError struct{}

func (okError) Error() string              { return "all is well" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// Interceptors outside see what a refusal was made from, and may wrap it without giving its cause away.
func TestRefusalAsSeenOutside(t *testing.T) {
	b := backends["memory"](t)
	b.store = &sometimesDown{b.store, 1}
	outer := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_, err := handler(ctx, req)
		if e, ok := errors.AsType[*idempotency.Error](err); !ok || e.Cause == nil || !strings.Contains(e.Cause.Error(), "secret") {
			t.Errorf("outside the error is %T: %v", err, err)
		}
		if !errors.Is(err, status.Convert(err).Err()) {
			t.Errorf("%v is not its own status", err)
		}
		return nil, fmt.Errorf("outside: %w", err)
	}
	a := guarded(t, b.guard(t), nil, outer).create(within(t), "unavailable", "")
	a.mustBeRefused(t, codes.Unavailable, idempotency.ReasonStoreUnavailable)
	checkRetry(t, a, true)
	if !strings.HasPrefix(a.status().Message(), "outside: ") {
		t.Errorf("the client is told %v", a.err)
	}
}

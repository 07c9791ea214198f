package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// A client reads each refusal alike over every protocol: code, reason, and when to come back.
func TestRefusals(t *testing.T) {
	type sent struct{ key, description string }
	tests := map[string]struct {
		opts    []idempotency.Option
		first   *sent // sent before, if any
		retry   sent
		code    connect.Code
		reason  string
		retryIn bool
	}{
		"reused": {
			first: &sent{"k", "one"}, retry: sent{"k", "another"},
			code: connect.CodeFailedPrecondition, reason: idempotency.ReasonKeyReused,
		},
		"required": {
			opts: []idempotency.Option{idempotency.WithKeyRequired()},
			code: connect.CodeInvalidArgument, reason: idempotency.ReasonKeyRequired,
		},
		"too long": {
			retry: sent{strings.Repeat("k", 256), ""}, code: connect.CodeInvalidArgument, reason: idempotency.ReasonKeyInvalid,
		},
		"reply not kept": {
			opts: []idempotency.Option{idempotency.WithMaxReplySize(1)}, first: &sent{"k", ""}, retry: sent{"k", ""},
			code: connect.CodeFailedPrecondition, reason: idempotency.ReasonReplyNotKept,
		},
		"store unavailable": {
			retry: sent{"unavailable", ""}, code: connect.CodeUnavailable, reason: idempotency.ReasonStoreUnavailable, retryIn: true,
		},
	}
	for name, test := range tests {
		for protocol := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				b := backends["memory"](t)
				b.store = sometimesDown{b.store}
				c := guarded(t, b.guard(t, test.opts...), respond).client(t, protocol)
				if test.first != nil {
					c.charge(t, test.first.key, test.first.description).mustBe(t, "ch_1")
				}
				a := c.charge(t, test.retry.key, test.retry.description)
				a.mustRefuse(t, test.code, test.reason)
				a.mustSayWhen(t, test.retryIn)
				if strings.Contains(a.text, "secret") {
					t.Errorf("the client is told %q", a.text)
				}
			})
		}
	}
}

// sometimesDown fails for one key.
type sometimesDown struct{ store.Store }

func (s sometimesDown) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	if c.ID.Key == "unavailable" {
		return store.Found{}, nil, errors.New("postgres://user:secret@host is down")
	}
	return s.Store.Claim(ctx, c)
}

// A key that is sent twice is refused.
func TestKeySentTwice(t *testing.T) {
	c := guarded(t, backends["memory"](t).guard(t), respond).client(t, "grpc")
	ctx, info := connect.NewClientContext(within(t))
	info.RequestHeader().SetValues("idempotency-key", []string{"k", "k"})
	res, err := c.CreateCharge(ctx, request(""))
	answerOf(t, info, res, err).mustRefuse(t, connect.CodeInvalidArgument, idempotency.ReasonKeyInvalid)
}

// While the first call runs, a retry is told to come back, within the lease, and another request meets each mode's rule.
func TestInProgress(t *testing.T) {
	for name, makeBackend := range backends {
		t.Run(name, func(t *testing.T) {
			b := makeBackend(t)
			running, finish := make(chan struct{}), make(chan struct{})
			create := func(ctx context.Context, _ createRequest) (createResponse, error) {
				close(running)
				select {
				case <-finish:
					return created("ch_1"), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			s := guarded(t, b.guard(t), create)
			first := make(chan answer, 1)
			go func() { first <- s.client(t, "grpc").charge(t, "k", "one") }()
			<-running
			for protocol := range protocols {
				c := s.client(t, protocol)
				a := c.charge(t, "k", "one")
				a.mustRefuse(t, connect.CodeAborted, idempotency.ReasonKeyInProgress)
				a.mustSayWhen(t, true)
				if d := detail[*errdetails.RetryInfo](t, a).GetRetryDelay().AsDuration(); d < 0 || d > 30*time.Second {
					t.Errorf("come back in %v, want within the lease", d)
				}
				if a := c.charge(t, "k", "another"); b.store.Transactional() {
					a.mustRefuse(t, connect.CodeAborted, idempotency.ReasonKeyInProgress)
				} else {
					a.mustRefuse(t, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
				}
			}
			close(finish)
			a := <-first
			a.mustBe(t, "ch_1")
			s.client(t, "grpc").charge(t, "k", "another").mustRefuse(t, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
		})
	}
}

// A retry that waits gets the first call's answer, as a replay.
func TestWaiting(t *testing.T) {
	b := backends["transactional"](t)
	running, finish := make(chan struct{}), make(chan struct{})
	create := func(context.Context, createRequest) (createResponse, error) {
		close(running)
		<-finish
		return created("ch_1"), nil
	}
	waiting := make(chan struct{}, 1)
	tells := func(_ context.Context, e idempotency.Event) {
		if e.Outcome == idempotency.Waiting {
			waiting <- struct{}{}
		}
	}
	s := guarded(t, b.guard(t, idempotency.WithWaiting(15*time.Second), idempotency.WithObserver(tells)), create)
	answers := make(chan answer, 2)
	go func() { answers <- s.client(t, "grpc").charge(t, "k", "") }()
	<-running
	go func() { answers <- s.client(t, inProcess).charge(t, "k", "") }()
	<-waiting
	close(finish)
	replays := 0
	for range 2 {
		a := <-answers
		a.mustBe(t, "ch_1")
		if a.replayed() {
			replays++
		}
	}
	if replays != 1 {
		t.Errorf("%d of both answers are replays, want one", replays)
	}
}

// A call whose scope cannot be told is refused as the scope function says, and leaves nothing.
func TestScopeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code connect.Code
		text string
	}{
		"connect's own": {
			fmt.Errorf("so: %w", connect.NewError(connect.CodeUnauthenticated, "who?")), connect.CodeUnauthenticated, "who?",
		},
		"another server's":    {connect.NewError(connect.CodeUnauthenticated, "theirs").WithRemote(), connect.CodeInternal, ""},
		"of the guard's kind": {&idempotency.Error{Code: 16, Message: "who?"}, connect.CodeUnauthenticated, "who?"},
		"any other": {
			errors.New("the tenants' table is down"), connect.CodeInternal, "idempotency: the call's scope could not be told",
		},
	} {
		for protocol := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				b := backends["memory"](t)
				b.store = neverClaimed{b.store, t}
				scope := func(context.Context, idempotency.Call) (string, error) { return "", test.err }
				a := guarded(t, b.guard(t, idempotency.WithScope(scope)), respond).client(t, protocol).charge(t, "k", "")
				if a.code != test.code || a.text != test.text {
					t.Errorf("refused with %+v, want %v: %s", a, test.code, test.text)
				}
			})
		}
	}
}

// The scope function, and outer interceptors, find what they need of a refusal.
func TestRefusalKeepsItsCause(t *testing.T) {
	var seen error
	outer := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			seen = next(ctx, spec, stream)
			return seen
		}
	}
	down := errors.New("the tenants' table is down")
	scope := func(context.Context, idempotency.Call) (string, error) { return "", down }
	guarded(t, backends["memory"](t).guard(t, idempotency.WithScope(scope)), respond, outer).client(t, "grpc").charge(t, "k", "")
	if !errors.Is(seen, down) || idempotency.ReasonOf(seen) != idempotency.ReasonMisconfigured {
		t.Errorf("an outer interceptor got %v, want what the scope function returned within", seen)
	}
}

// A reply that this caller may not see any more is refused as the check says.
func TestReplayCheck(t *testing.T) {
	check := idempotency.WithReplayCheck(func(context.Context, idempotency.Call, idempotency.Reply) error {
		return connect.NewError(connect.CodePermissionDenied, "not yours any more")
	})
	c := guarded(t, backends["memory"](t).guard(t, check), respond).client(t, "grpc-web")
	c.charge(t, "k", "").mustBe(t, "ch_1")
	if a := c.charge(t, "k", ""); a.code != connect.CodePermissionDenied || a.text != "not yours any more" || a.replayed() {
		t.Errorf("answered %+v, want the check's error", a)
	}
}

type neverClaimed struct {
	store.Store
	t *testing.T
}

func (s neverClaimed) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	s.t.Errorf("claimed %v, %s", c.ID, c.Procedure)
	return s.Store.Claim(ctx, c)
}

// The key may be a field of the request, of which no metadata says anything.
func TestKeyField(t *testing.T) {
	var runs atomic.Int32
	create := func(_ context.Context, req createRequest) (createResponse, error) {
		return created(fmt.Sprintf("ch_%d for %s", runs.Add(1), req.Description)), nil
	}
	s := guarded(t, backends["memory"](t).guard(t, idempotency.WithKeyField("description")), create)
	for protocol := range protocols {
		s.client(t, protocol).charge(t, "", "order-1").mustBe(t, "ch_1 for order-1")
	}
}

// A page in a browser is told which headers it may send and read.
func TestCORSHeaders(t *testing.T) {
	g := backends["memory"](t).guard(t, idempotency.WithHeader("x-request-key"))
	if got := strings.Join(connectv2.AllowedHeaders(g), ","); got != "X-Request-Key" {
		t.Errorf("allowed: %s", got)
	}
	if got := strings.Join(connectv2.ExposedHeaders(), ","); got != "Idempotency-Replayed,Retry-After" {
		t.Errorf("exposed: %s", got)
	}
}

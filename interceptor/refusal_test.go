package interceptor_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func respond(context.Context, createRequest) (createResponse, error) {
	return created("ch_1"), nil
}

// A client reads each refusal alike over every protocol: code, reason, and when to come back.
func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		opts    []idempotency.Option
		first   createRequest // sent before, if any
		retry   createRequest
		code    connect.Code
		reason  string
		retryIn bool
	}{
		"reused": {
			first: charge("k", "one"), retry: charge("k", "another"),
			code: connect.CodeFailedPrecondition, reason: idempotency.ReasonKeyReused,
		},
		"required": {
			opts: []idempotency.Option{idempotency.WithKeyRequired()}, retry: charge("", ""),
			code: connect.CodeInvalidArgument, reason: idempotency.ReasonKeyRequired,
		},
		"too long": {
			retry: charge(strings.Repeat("k", 256), ""), code: connect.CodeInvalidArgument, reason: idempotency.ReasonKeyInvalid,
		},
		"sent twice": {
			retry: func() createRequest {
				req := charge("k", "")
				req.Header().Add("Idempotency-Key", "k")
				return req
			}(),
			code: connect.CodeInvalidArgument, reason: idempotency.ReasonKeyInvalid,
		},
		"reply not kept": {
			opts: []idempotency.Option{idempotency.WithMaxReplySize(1)}, first: charge("k", ""), retry: charge("k", ""),
			code: connect.CodeFailedPrecondition, reason: idempotency.ReasonReplyNotKept,
		},
		"store unavailable": {
			retry: charge("unavailable", ""), code: connect.CodeUnavailable, reason: idempotency.ReasonStoreUnavailable, retryIn: true,
		},
	}
	for name, test := range tests {
		for protocol := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				b := backends["memory"](t)
				b.store = sometimesDown{b.store}
				client := guarded(t, b.guard(t, test.opts...), service{create: respond}).client(t, protocol)
				if test.first != nil {
					if _, err := client.CreateCharge(within(t), test.first); err != nil {
						t.Fatal(err)
					}
				}
				_, err := client.CreateCharge(within(t), test.retry)
				e := refusedAs(t, err, test.code, test.reason)
				checkRetry(t, e, test.retryIn)
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

func checkRetry(t *testing.T, e *connect.Error, want bool) {
	t.Helper()
	info := detail[*errdetails.RetryInfo](t, e)
	header := e.Meta().Get("Retry-After")
	if (info != nil) != want || (header != "") != want {
		t.Errorf("RetryInfo %v and retry-after %q, want both: %v", info, header, want)
	}
	if strings.Contains(e.Message(), "secret") {
		t.Errorf("the client is told %q", e.Message())
	}
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
			s := guarded(t, b.guard(t), service{create: create})
			first := make(chan error, 1)
			go func() {
				_, err := s.client(t, "grpc").CreateCharge(within(t), charge("k", "one"))
				first <- err
			}()
			<-running
			for protocol := range protocols {
				client := s.client(t, protocol)
				_, err := client.CreateCharge(within(t), charge("k", "one"))
				e := refusedAs(t, err, connect.CodeAborted, idempotency.ReasonKeyInProgress)
				checkRetry(t, e, true)
				if d := detail[*errdetails.RetryInfo](t, e).GetRetryDelay().AsDuration(); d < 0 || d > 30*time.Second {
					t.Errorf("come back in %v, want within the lease", d)
				}
				_, err = client.CreateCharge(within(t), charge("k", "another"))
				if b.store.Transactional() {
					mustRefuse(t, err, connect.CodeAborted, idempotency.ReasonKeyInProgress)
				} else {
					mustRefuse(t, err, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
				}
			}
			close(finish)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			_, err := s.client(t, "grpc").CreateCharge(within(t), charge("k", "another"))
			mustRefuse(t, err, connect.CodeFailedPrecondition, idempotency.ReasonKeyReused)
		})
	}
}

// The key is one key over any two protocols, and in both of its forms.
func TestOneKeyInBothForms(t *testing.T) {
	client := guarded(t, backends["memory"](t).guard(t), service{create: respond}).client(t, "connect json")
	for i, key := range []string{"k-1", `"k-1"`} {
		res, err := client.CreateCharge(within(t), charge(key, ""))
		if a := answerOf(t, res, err); a.replayed() != (i == 1) {
			t.Errorf("%s: %+v", key, a)
		}
	}
}

// Reads, streams, other procedures' policies and calls without a key pass by.
func TestPassingBy(t *testing.T) {
	b := backends["memory"](t)
	b.store = neverClaimed{b.store, t}
	g := b.guard(t, idempotency.WithPolicy(func(c idempotency.Call, p idempotency.Policy) idempotency.Policy {
		p.Off = strings.HasSuffix(c.Procedure, "/RefundCharge")
		return p
	}))
	refund := func(context.Context, refundRequest) (refundResponse, error) {
		return connect.NewResponse(new(chargesv1.RefundChargeResponse)), nil
	}
	s := guarded(t, g, service{create: respond, refund: refund})
	for protocol := range protocols {
		client := s.client(t, protocol)
		get, list, ref := connect.NewRequest(new(chargesv1.GetChargeRequest)), connect.NewRequest(new(chargesv1.ListChargesRequest)),
			connect.NewRequest(new(chargesv1.RefundChargeRequest))
		for _, h := range []http.Header{get.Header(), list.Header(), ref.Header()} {
			h.Set("Idempotency-Key", "k")
		}
		_, getErr := client.GetCharge(within(t), get)
		_, refundErr := client.RefundCharge(within(t), ref)
		_, createErr := client.CreateCharge(within(t), charge("", ""))
		stream, listErr := client.ListCharges(within(t), list)
		if err := errors.Join(getErr, refundErr, createErr, listErr); err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() {
			t.Errorf("%s: the stream has nothing: %v", protocol, stream.Err())
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
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

// A call without a key costs no allocation.
func TestCallWithoutKeyAllocatesNothing(t *testing.T) {
	req := charge("", "")
	req.Header().Set("Content-Type", "application/proto")
	next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		return nil, errors.ErrUnsupported
	}
	wrapped := interceptor.New(backends["memory"](t).guard(t)).WrapUnary(next)
	if n := testing.AllocsPerRun(100, func() { _, _ = wrapped(t.Context(), req) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// A client with the interceptor is left alone.
func TestClientPassesBy(t *testing.T) {
	b := backends["memory"](t)
	b.store = neverClaimed{b.store, t}
	next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return created("ch_1"), nil }
	wrapped := interceptor.New(b.guard(t)).WrapUnary(next)
	if _, err := wrapped(t.Context(), clientSide{charge("k", "")}); err != nil {
		t.Fatal(err)
	}
}

type clientSide struct {
	createRequest
}

func (clientSide) Spec() connect.Spec { return connect.Spec{IsClient: true} }

// A page in a browser is told which headers it may send and read.
func TestCORSHeaders(t *testing.T) {
	g := backends["memory"](t).guard(t, idempotency.WithHeader("x-request-key"))
	if got := strings.Join(interceptor.AllowedHeaders(g), ","); got != "X-Request-Key" {
		t.Errorf("allowed: %s", got)
	}
	if got := strings.Join(interceptor.ExposedHeaders(), ","); got != "Idempotency-Replayed,Retry-After" {
		t.Errorf("exposed: %s", got)
	}
}

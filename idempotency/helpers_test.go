package idempotency_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

const (
	createCharge = "/charges.v1.ChargeService/CreateCharge"
	refundCharge = "/charges.v1.ChargeService/RefundCharge"

	// secretKey must not be met anywhere but in the store.
	secretKey = "secret-key-5f2a"
)

// rig is a guard with what it tells and logs.
type rig struct {
	*idempotency.Guard
	store *fake

	mu     sync.Mutex
	events []idempotency.Event
	logs   bytes.Buffer
}

// newRig makes a guard of a single scope, unless the options say otherwise.
func newRig(t *testing.T, s *fake, opts ...idempotency.Option) *rig {
	t.Helper()
	r := &rig{store: s}
	g, err := idempotency.New(s, slices.Concat([]idempotency.Option{
		idempotency.WithSingleScope(),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(r, nil))),
		idempotency.WithObserver(r.observe),
	}, opts)...)
	if err != nil {
		t.Fatal(err)
	}
	r.Guard = g
	return r
}

func (r *rig) observe(_ context.Context, e idempotency.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Write takes what is logged.
func (r *rig) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.Write(line)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.String()
}

func (r *rig) told() []idempotency.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// last returns the latest event.
func (r *rig) last(t *testing.T) idempotency.Event {
	t.Helper()
	told := r.told()
	if len(told) == 0 {
		t.Fatal("no outcome was observed")
	}
	return told[len(told)-1]
}

// result is what Do returned.
type result struct {
	reply    idempotency.Reply
	replayed bool
	err      error
}

func (r *rig) do(ctx context.Context, c idempotency.Call, run func(context.Context) idempotency.Reply) result {
	reply, replayed, err := r.Do(ctx, c, run)
	return result{reply, replayed, err}
}

// mustRun fails t unless the call ran and was answered with its own reply.
func (r *rig) mustRun(t *testing.T, c idempotency.Call, reply idempotency.Reply) {
	t.Helper()
	h := handler{reply: reply}
	res := r.do(t.Context(), c, h.run)
	if res.err != nil {
		t.Fatalf("the call was refused: %v", res.err)
	}
	if res.replayed || h.runs.Load() != 1 {
		t.Fatalf("replayed = %v after %d runs, want a run", res.replayed, h.runs.Load())
	}
	if res.reply.Message != reply.Message || res.reply.Error != reply.Error {
		t.Fatalf("the caller got %v, want its handler's own %v", res.reply, reply)
	}
}

// mustReplay fails t unless the call is answered from the store, with want's message.
func (r *rig) mustReplay(t *testing.T, c idempotency.Call, want proto.Message) idempotency.Reply {
	t.Helper()
	res := r.do(t.Context(), c, neverRuns(t))
	if res.err != nil {
		t.Fatalf("the call was refused: %v", res.err)
	}
	if !res.replayed {
		t.Fatal("the reply is no replay")
	}
	if !proto.Equal(res.reply.Message, want) {
		t.Fatalf("replayed %v, want %v", res.reply.Message, want)
	}
	return res.reply
}

// mustRefuse fails t unless the call is refused, without a run.
func (r *rig) mustRefuse(t *testing.T, c idempotency.Call, want code.Code, reason string) {
	t.Helper()
	r.do(t.Context(), c, neverRuns(t)).requireRefused(t, want, reason)
}

// refusal is mustRefuse for those who look at the error.
func (r *rig) refusal(t *testing.T, c idempotency.Call, want code.Code, reason string) *idempotency.Error {
	t.Helper()
	return r.do(t.Context(), c, neverRuns(t)).refusal(t, want, reason)
}

// requireRefused fails t unless res is a refusal, with nothing of a reply.
func (res result) requireRefused(t *testing.T, want code.Code, reason string) {
	t.Helper()
	if e := res.refusal(t, want, reason); e.Message == "" {
		t.Errorf("the refusal %v says nothing to the client", e)
	}
}

// refusal is requireRefused for those who look at the error.
func (res result) refusal(t *testing.T, want code.Code, reason string) *idempotency.Error {
	t.Helper()
	e, ok := res.err.(*idempotency.Error) //nolint:errorlint // Do's error is one, and does not wrap one
	if !ok {
		t.Fatalf("the error is a %T, %v; want an *idempotency.Error", res.err, res.err)
	}
	if e.Code != want || idempotency.ReasonOf(e) != reason {
		t.Fatalf("refused as %v %q, want %v %q: %v", e.Code, idempotency.ReasonOf(e), want, reason, e)
	}
	if r := res.reply; res.replayed || r.Message != nil || r.Error != nil || r.Header != nil || r.Trailer != nil {
		t.Fatalf("a refused caller got the reply %v, replayed = %v", r, res.replayed)
	}
	return e
}

// retryDelay returns when a refusal says to come back, and fails t where it does not say.
func retryDelay(t *testing.T, e *idempotency.Error) time.Duration {
	t.Helper()
	for _, d := range e.Details {
		info := new(errdetails.RetryInfo)
		if !d.MessageIs(info) {
			continue
		}
		if err := d.UnmarshalTo(info); err != nil {
			t.Fatal(err)
		}
		return info.RetryDelay.AsDuration()
	}
	t.Fatalf("no RetryInfo in %v", e.Details)
	return 0
}

// handler counts its runs.
type handler struct {
	reply idempotency.Reply
	runs  atomic.Int32
}

func (h *handler) run(context.Context) idempotency.Reply {
	h.runs.Add(1)
	return h.reply
}

// neverRuns is a handler of a call that must not run.
func neverRuns(t *testing.T) func(context.Context) idempotency.Reply {
	t.Helper()
	return func(context.Context) idempotency.Reply {
		t.Error("the handler ran")
		return idempotency.Reply{}
	}
}

// charge is a call of CreateCharge.
func charge(key string, amount int64) idempotency.Call {
	return idempotency.Call{
		Procedure: createCharge,
		Keys:      []string{key},
		Request:   &chargesv1.CreateChargeRequest{Amount: amount, Currency: "USD", CardToken: "tok_ok"},
	}
}

// created is the reply of a CreateCharge that succeeded.
func created(id string) idempotency.Reply {
	return idempotency.Reply{Message: &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: id}}}
}

// failed is the reply of a call that failed.
func failed(c code.Code) idempotency.Reply {
	return idempotency.Reply{Error: &idempotency.Error{Code: c, Message: "the handler's own words"}}
}

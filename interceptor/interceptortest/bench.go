package interceptortest

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// patience is how long a call may take, at most.
const patience = time.Minute

// bench is where a scenario runs.
type bench struct {
	t         *testing.T
	ctx       context.Context
	guard     *idempotency.Guard
	client    Client
	inProcess bool
	runs      atomic.Int32
	scoped    chan struct{} // has one for each call that was to be guarded

	mu      sync.Mutex
	handler Handler
}

func newBench(t *testing.T, s store.Store, opts ...idempotency.Option) *bench {
	t.Helper()
	b := &bench{t: t, scoped: make(chan struct{}, 1000)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	b.ctx = ctx
	opts = append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)),
		idempotency.WithScope(func(context.Context, idempotency.Call) (string, error) {
			b.scoped <- struct{}{}
			return "tenant", nil
		}))
	g, err := idempotency.New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close the guard: %v", err)
		}
	})
	b.guard = g
	b.answer(charged("ch_1"))
	return b
}

// create counts its runs, and does what the scenario wants of the handler.
func (b *bench) create(ctx context.Context, req *chargesv1.CreateChargeRequest) idempotency.Reply {
	b.runs.Add(1)
	b.mu.Lock()
	handler := b.handler
	b.mu.Unlock()
	return handler(ctx, req)
}

// handle sets what the handler does from now on.
func (b *bench) handle(h Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handler = h
}

// answer has the handler answer with r from now on.
func (b *bench) answer(r idempotency.Reply) {
	b.handle(func(context.Context, *chargesv1.CreateChargeRequest) idempotency.Reply { return r })
}

// call makes a call with a key.
func (b *bench) call(key string) Answer { return b.client.Create(b.ctx, []string{key}, request(1299)) }

// begin makes a call whose handler has begun when it returns, and goes on when the channel is closed.
func (b *bench) begin(key string, then idempotency.Reply) (goOn chan<- struct{}, answer <-chan Answer) {
	running, gate, answers := make(chan struct{}), make(chan struct{}), make(chan Answer, 1)
	b.handle(func(context.Context, *chargesv1.CreateChargeRequest) idempotency.Reply {
		close(running)
		<-gate
		return then
	})
	go func() { answers <- b.call(key) }()
	select {
	case <-running:
	case a := <-answers:
		close(gate)
		b.t.Fatalf("the first call ended before its handler did, with %v", a)
	}
	return gate, answers
}

func request(amount int64) *chargesv1.CreateChargeRequest {
	return &chargesv1.CreateChargeRequest{Amount: amount, Currency: "USD", CardToken: "tok_ok"}
}

func charged(id string) idempotency.Reply {
	return idempotency.Reply{Message: &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: id, Amount: 1299, Currency: "USD"}}}
}

// declined is an error with a detail, and one of a type that nobody knows.
func declined(t *testing.T) idempotency.Reply {
	t.Helper()
	detail, err := anypb.New(&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/nobody.knows.This", Value: []byte{0x0a, 0x01, 0xff}}
	return idempotency.Reply{Error: &idempotency.Error{
		Code: code.Code_FAILED_PRECONDITION, Message: "declined: 50 % over the limit, café", Details: []*anypb.Any{detail, unknown},
	}}
}

func withMetadata(r idempotency.Reply) idempotency.Reply {
	r.Header = idempotency.Metadata{"x-header": {"one", "two"}, "x-header-bin": {base64.RawStdEncoding.EncodeToString([]byte{0, 0xff, 1})}}
	r.Trailer = idempotency.Metadata{"x-trailer": {"three"}, "x-trailer-bin": {base64.RawStdEncoding.EncodeToString([]byte("raw\x00"))}}
	return r
}

// answerOf is what a client sees of a reply.
func answerOf(r idempotency.Reply) Answer {
	a := Answer{Error: r.Error, Metadata: make(idempotency.Metadata)}
	a.Message, _ = r.Message.(*chargesv1.CreateChargeResponse)
	maps.Copy(a.Metadata, r.Header)
	maps.Copy(a.Metadata, r.Trailer)
	return a
}

// requireRuns fails the test unless the handler ran so many times.
func (b *bench) requireRuns(want int32) {
	b.t.Helper()
	if got := b.runs.Load(); got != want {
		b.t.Errorf("the handler ran %d times, want %d", got, want)
	}
}

// requireFresh fails the test where a is a replay.
func (b *bench) requireFresh(a Answer) {
	b.t.Helper()
	if replayed(a) {
		b.t.Errorf("the first answer says that it is a replay: %v", a)
	}
}

// requireReplay fails the test unless a says that it is a replay, and is what was told in all else.
func (b *bench) requireReplay(a, told Answer) {
	b.t.Helper()
	if !replayed(a) {
		b.t.Errorf("it is no replay: %v", a)
	}
	b.requireSame(a, told)
}

func replayed(a Answer) bool {
	return slices.Equal(a.Metadata[idempotency.HeaderReplayed], []string{"true"})
}

// requireSame compares two answers, but for the mark of a replay.
func (b *bench) requireSame(got, want Answer) {
	b.t.Helper()
	if !proto.Equal(got.Message, want.Message) {
		b.t.Errorf("the message is %v, want %v", got.Message, want.Message)
	}
	if g, w := own(got.Metadata), own(want.Metadata); !maps.EqualFunc(g, w, slices.Equal) {
		b.t.Errorf("the metadata is %q, want %q", g, w)
	}
	switch {
	case (got.Error == nil) != (want.Error == nil):
		b.t.Errorf("the error is %v, want %v", got.Error, want.Error)
	case got.Error != nil:
		b.requireSameError(got.Error, want.Error)
	}
}

func (b *bench) requireSameError(got, want *idempotency.Error) {
	b.t.Helper()
	if got.Code != want.Code || got.Message != want.Message || len(got.Details) != len(want.Details) {
		b.t.Errorf("the error is %v with %d details, want %v with %d", got, len(got.Details), want, len(want.Details))
		return
	}
	for i, d := range want.Details {
		if g := got.Details[i]; g.MessageName() != d.MessageName() || !bytes.Equal(g.Value, d.Value) {
			b.t.Errorf("detail %d is %v, want %v", i, g, d)
		}
	}
}

// own is the metadata that is not the protocol's: the handlers' here begin with "x-".
func own(m idempotency.Metadata) idempotency.Metadata {
	kept := make(idempotency.Metadata)
	for name, values := range m {
		if strings.HasPrefix(name, "x-") {
			kept[name] = slices.Clone(values)
		}
		if strings.HasSuffix(name, "-bin") {
			for i, v := range kept[name] {
				kept[name][i] = strings.TrimRight(v, "=")
			}
		}
	}
	return kept
}

// requireRefused fails the test unless a is a refusal of the guard's, with such a code and reason.
func (b *bench) requireRefused(a Answer, want code.Code, reason string) {
	b.t.Helper()
	switch {
	case a.Error == nil:
		b.t.Errorf("the answer is %v, want the refusal %s", a.Message, reason)
	case a.Error.Code != want || idempotency.ReasonOf(a.Error) != reason:
		b.t.Errorf("refused with %v (%q), want %v (%q)", a.Error, idempotency.ReasonOf(a.Error), want, reason)
	}
	if replayed(a) {
		b.t.Errorf("a refusal says that it is a replay: %v", a)
	}
}

package grpcgo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// journal is what happened, in its order.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) add(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event)
}

func (j *journal) mustBe(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.events, want) {
		t.Errorf("what happened is %q, want %q", j.events, want)
	}
}

// watched notes what reaches the call's own stream.
func (j *journal) watched(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	s := watchedStream{grpc.ServerTransportStreamFromContext(ctx), j}
	return handler(grpc.NewContextWithServerTransportStream(ctx, s), req)
}

type watchedStream struct {
	grpc.ServerTransportStream
	journal *journal
}

func (s watchedStream) SetHeader(md metadata.MD) error {
	s.journal.add("header set")
	return s.ServerTransportStream.SetHeader(md)
}

func (s watchedStream) SendHeader(md metadata.MD) error {
	s.journal.add("header sent")
	return s.ServerTransportStream.SendHeader(md)
}

func (s watchedStream) SetTrailer(md metadata.MD) error {
	s.journal.add("trailer set")
	return s.ServerTransportStream.SetTrailer(md)
}

// watchedStore notes when an attempt is settled.
type watchedStore struct {
	store.Store
	journal *journal
}

func (s watchedStore) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	found, attempt, err := s.Store.Claim(ctx, c)
	if attempt != nil {
		attempt = watchedAttempt{attempt, s.journal}
	}
	return found, attempt, err
}

type watchedAttempt struct {
	store.Attempt
	journal *journal
}

func (a watchedAttempt) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	err := a.Attempt.Complete(ctx, r, keepWrites)
	a.journal.add("settled")
	return err
}

func (a watchedAttempt) Release(ctx context.Context) error {
	err := a.Attempt.Release(ctx)
	a.journal.add("settled")
	return err
}

// Nothing goes out before the attempt is settled, and then as the handler said.
func TestMetadataIsHeldBack(t *testing.T) {
	header, trailer := metadata.Pairs("x-header", "1"), metadata.Pairs("x-trailer", "1")
	for name, test := range map[string]struct {
		handler createFunc
		want    []string
	}{
		"set": {func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			return created("ch_1"), set(ctx, header, trailer)
		}, []string{"settled", "header set", "trailer set"}},
		"sent": {func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			return created("ch_1"), errors.Join(grpc.SendHeader(ctx, header), grpc.SetTrailer(ctx, trailer))
		}, []string{"settled", "header sent", "trailer set"}},
		"sent, empty": {func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			return created("ch_1"), grpc.SendHeader(ctx, nil)
		}, []string{"settled", "header sent"}},
		"set, and released": {func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
			return nil, errors.Join(set(ctx, header, trailer), status.Error(codes.Unavailable, "later"))
		}, []string{"settled", "header set", "trailer set"}},
		"none": {respond, []string{"settled"}},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			b := backends["memory"](t)
			b.store = watchedStore{b.store, &j}
			guarded(t, b.guard(t), test.handler, j.watched).create(within(t), "k", "")
			j.mustBe(t, test.want...)
		})
	}
}

// Once a run has sent its header it can set no more of it, as on grpc's own stream.
func TestHeaderIsSentOnce(t *testing.T) {
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x-header", "1")); err != nil {
			return nil, err
		}
		setErr := grpc.SetHeader(ctx, metadata.Pairs("x-header", "2"))
		sendErr := grpc.SendHeader(ctx, metadata.Pairs("x-header", "3"))
		if status.Code(setErr) != codes.Internal || status.Code(sendErr) != codes.Internal {
			t.Errorf("set and sent again: %v, %v", setErr, sendErr)
		}
		if method, ok := grpc.Method(ctx); !ok || method != create {
			t.Errorf("the method is %q", method)
		}
		return created("ch_1"), nil
	}
	client := guarded(t, backends["memory"](t).guard(t), handler)
	for _, replayed := range []bool{false, true} {
		a := client.create(within(t), "k", "")
		a.mustSucceed(t, "ch_1", replayed)
		if got := a.header["x-header"]; !slices.Equal(got, []string{"1"}) {
			t.Errorf("x-header is %q, want the one that was sent", got)
		}
	}
}

// What a goroutine sets that its run has left behind comes too late, and it is told so.
func TestNothingIsSetAfterTheRun(t *testing.T) {
	contexts := make(chan context.Context, 1)
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		contexts <- ctx
		return created("ch_1"), nil
	}
	guarded(t, backends["memory"](t).guard(t), handler).create(within(t), "k", "").mustSucceed(t, "ch_1", false)
	left := <-contexts
	for name, setLate := range map[string]func(context.Context, metadata.MD) error{
		"SetHeader": grpc.SetHeader, "SendHeader": grpc.SendHeader, "SetTrailer": grpc.SetTrailer,
	} {
		if err := setLate(left, metadata.Pairs("x-late", "1")); status.Code(err) != codes.Internal {
			t.Errorf("%s after the run: %v", name, err)
		}
	}
}

// What an outer interceptor puts on an answer is not the run's: it is there once, fresh or replayed.
func TestOuterMetadataIsNotKept(t *testing.T) {
	calls := 0
	outer := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		calls++
		if err := set(ctx, metadata.Pairs("x-call", fmt.Sprint(calls)), metadata.Pairs("x-call", fmt.Sprint(calls))); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		return created("ch_1"), set(ctx, metadata.Pairs("x-call", "run"), metadata.Pairs("x-call", "run"))
	}
	client := guarded(t, backends["memory"](t).guard(t), handler, outer)
	for _, call := range []string{"1", "2"} {
		a := client.create(within(t), "k", "")
		for _, md := range []metadata.MD{a.header, a.trailer} {
			if got := md["x-call"]; !slices.Equal(got, []string{call, "run"}) {
				t.Errorf("x-call is %q, want %s and run", got, call)
			}
		}
	}
}

// Interceptors inside run with the handler alone, and what they add is the run's.
func TestInnerInterceptorsRunOnce(t *testing.T) {
	var j journal
	inner := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		j.add("inner")
		return handler(ctx, req)
	}
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		return created("ch_1"), grpc.SetHeader(ctx, metadata.Pairs("x-run", "1"))
	}
	client := dial(t, serve(t, charges(handler), interceptorOf(backends["memory"](t).guard(t)), inner, j.watched))
	for _, replayed := range []bool{false, true} {
		a := client.create(within(t), "k", "")
		a.mustSucceed(t, "ch_1", replayed)
		if got := a.header["x-run"]; !slices.Equal(got, []string{"1"}) {
			t.Errorf("x-run is %q", got)
		}
	}
	j.mustBe(t, "inner", "header set")
}

// Where an outer interceptor has sent the header, the trailer takes the run's and the mark, so that neither is lost.
func TestHeaderWasSentOutside(t *testing.T) {
	outer := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x-outer", "1")); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		return created("ch_1"), grpc.SetHeader(ctx, metadata.Pairs("x-run", "1"))
	}
	client := guarded(t, backends["memory"](t).guard(t), handler, outer)
	for _, replayed := range []bool{false, true} {
		a := client.create(within(t), "k", "")
		a.mustSucceed(t, "ch_1", replayed)
		if got := a.trailer["x-run"]; !slices.Equal(got, []string{"1"}) {
			t.Errorf("x-run is %q", got)
		}
	}
}

// A handler whose transaction met a conflict runs again where that is asked for, as if the first run had set nothing.
func TestConflictRunsAgain(t *testing.T) {
	b := databases["transactional"](t)
	runs := 0
	handler := func(ctx context.Context, req *chargesv1.CreateChargeRequest) (any, error) {
		runs++
		run := metadata.Pairs("x-run", fmt.Sprint(runs))
		if err := errors.Join(set(ctx, run, run), b.effect(ctx, req.Description)); err != nil {
			return nil, err
		}
		if runs < 3 {
			return nil, fmt.Errorf("%w: %w", status.Error(codes.Internal, "no luck"), b.conflict(ctx))
		}
		return created("ch_1"), nil
	}
	client := guarded(t, b.guard(t, idempotency.WithConflictRetries(2)), handler)
	for _, replayed := range []bool{false, true} {
		a := client.create(within(t), "k", "one")
		a.mustSucceed(t, "ch_1", replayed)
		if header, trailer := a.header["x-run"], a.trailer["x-run"]; !slices.Equal(header, []string{"3"}) || !slices.Equal(trailer, []string{"3"}) {
			t.Errorf("x-run is %q and %q, want the third run's alone", header, trailer)
		}
	}
	if runs != 3 || b.effects(t) != 1 {
		t.Errorf("%d runs and %d effects, want three and one", runs, b.effects(t))
	}
}

// conflict has the call's transaction meet one.
func (b backend) conflict(ctx context.Context) error {
	_, err := postgres.Querier(ctx, b.pool).Exec(ctx, "do $$ begin raise exception 'met another' using errcode = '40001'; end $$")
	return err
}

// A caller whose attempt lost its key hears nothing of it: the answer is the other attempt's, with that one's metadata.
func TestFencedAttemptIsNotHeard(t *testing.T) {
	for _, mode := range []string{"memory", "leased"} {
		t.Run(mode, func(t *testing.T) {
			g := backends[mode](t).guard(t)
			var c conn
			runs := 0
			handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
				runs++
				run := fmt.Sprint(runs)
				err := errors.Join(grpc.SendHeader(ctx, metadata.Pairs("x-run", run)), grpc.SetTrailer(ctx, metadata.Pairs("x-run", run)))
				if run == "1" {
					if _, err := g.Forget(ctx, "", "k"); err != nil {
						t.Error(err)
					}
					c.create(within(t), "k", "").mustSucceed(t, "ch_2", false)
				}
				return created("ch_" + run), err
			}
			c = guarded(t, g, handler)
			a := c.create(within(t), "k", "")
			a.mustSucceed(t, "ch_2", true)
			if header, trailer := a.header["x-run"], a.trailer["x-run"]; !slices.Equal(header, []string{"2"}) || !slices.Equal(trailer, []string{"2"}) {
				t.Errorf("x-run is %q and %q, want the second run's alone", header, trailer)
			}
		})
	}
}

// Nothing of a run goes out with a refusal of its transaction.
func TestRefusedRunIsNotHeard(t *testing.T) {
	b := databases["transactional"](t)
	handler := func(ctx context.Context, _ *chargesv1.CreateChargeRequest) (any, error) {
		err := errors.Join(grpc.SendHeader(ctx, metadata.Pairs("x-run", "1")), grpc.SetTrailer(ctx, metadata.Pairs("x-run", "1")))
		if err != nil {
			return nil, err
		}
		return created("ch_1"), ignore(b.conflict(ctx)) // success over a transaction that has failed
	}
	a := guarded(t, b.guard(t), handler).create(within(t), "k", "one")
	a.mustBeRefused(t, codes.Internal, idempotency.ReasonTxRejected)
	if len(a.header["x-run"])+len(a.trailer["x-run"]) > 0 {
		t.Errorf("the run was heard: %v, %v", a.header, a.trailer)
	}
}

// ignore is what a handler does that does not look.
func ignore(error) error { return nil }

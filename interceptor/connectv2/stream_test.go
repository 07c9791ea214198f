package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func methodOf(t *testing.T, name protoreflect.Name) protoreflect.MethodDescriptor {
	t.Helper()
	m := chargesv1.File_charges_v1_charges_proto.Services().ByName("ChargeService").Methods().ByName(name)
	if m == nil {
		t.Fatalf("there is no %s", name)
	}
	return m
}

// byHand registers a handler under CreateCharge's name, behind a guard.
func byHand(t *testing.T, g *idempotency.Guard, schema any, handler connect.ServerFunc) *connect.Server {
	t.Helper()
	s := connect.NewServer(connectv2.NewServerInterceptor(g))
	s.Register(connect.Method{
		Spec:    connect.Spec{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure, Schema: schema},
		Handler: handler,
	})
	return s
}

// Nothing of an attempt is sent before it is settled, whatever the handler asks for.
func TestSendsAfterItIsSettled(t *testing.T) {
	for name, makeBackend := range backends {
		t.Run(name, func(t *testing.T) {
			settled := false
			observe := idempotency.WithObserver(func(context.Context, idempotency.Event) { settled = true })
			handler := func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
				info, _ := connect.CallInfoForServerContext(ctx)
				info.ResponseHeader().Set("X-Early", "1")
				if err := stream.SendHeaders(); err != nil {
					return err
				}
				return stream.Send(created("ch_1"))
			}
			s := byHand(t, makeBackend(t).guard(t, observe), methodOf(t, "CreateCharge"), handler)
			stream := &recorded{request: request("")}
			stream.onSend = func() {
				if !settled {
					t.Error("the message was sent before the attempt was settled")
				}
			}
			info := new(connect.CallInfo)
			info.RequestHeader().Set("Idempotency-Key", "k")
			if err := s.Call(t.Context(), chargesv1connect.ChargeServiceCreateChargeProcedure, info, stream); err != nil {
				t.Fatal(err)
			}
			if len(stream.sent) != 1 || stream.headersSent != 0 || info.ResponseHeader().Get("X-Early") != "1" {
				t.Errorf("sent %v, and the header alone %d times; want the message with its header", stream.sent, stream.headersSent)
			}
		})
	}
}

// A late attempt's caller gets nothing of it, header and trailer included: the one who took over has answered already.
func TestFencedAttemptSendsNothing(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			b := backends["memory"](t)
			var g *idempotency.Guard
			create := func(ctx context.Context, _ createRequest) (createResponse, error) {
				info, _ := connect.CallInfoForServerContext(ctx)
				info.ResponseHeader().Set("X-Late", "yes")
				info.ResponseTrailer().Set("X-Late-Trailer", "yes")
				if _, err := g.Forget(ctx, "", "k"); err != nil {
					t.Error(err)
				}
				call := idempotency.Call{
					Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure, Keys: []string{"k"}, Request: request(""),
				}
				_, _, err := g.Do(ctx, call, func(context.Context) idempotency.Reply {
					return idempotency.Reply{Message: created("ch_other"), Header: idempotency.Metadata{"x-other": {"yes"}}}
				})
				if err != nil {
					t.Error(err)
				}
				return created("ch_late"), nil
			}
			g = b.guard(t)
			outer := func(next connect.ServerFunc) connect.ServerFunc {
				return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
					info, _ := connect.CallInfoForServerContext(ctx)
					info.ResponseHeader().Set("X-Outer", "yes")
					return next(ctx, spec, stream)
				}
			}
			a := guarded(t, g, create, outer).client(t, protocol).charge(t, "k", "")
			a.mustBe(t, "ch_other")
			if !a.replayed() || a.values("X-Late") != nil || a.values("X-Late-Trailer") != nil || a.values("X-Other") == nil || a.values("X-Outer") == nil {
				t.Errorf("answered %+v, want the other's reply with the outer interceptor's header", a)
			}
		})
	}
}

// An attempt that could not be settled sends nothing of its own, header and trailer included.
func TestRefusedAttemptSendsNothing(t *testing.T) {
	b := backends["transactional"](t)
	b.store = neverCompletes{b.store}
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		info, _ := connect.CallInfoForServerContext(ctx)
		info.ResponseHeader().Set("X-Undone", "yes")
		info.ResponseTrailer().Set("X-Undone-Trailer", "yes")
		return created("ch_1"), nil
	}
	for protocol, c := range guarded(t, b.guard(t), create).clients(t) {
		a := c.charge(t, "k", "")
		a.mustRefuse(t, connect.CodeUnavailable, idempotency.ReasonStoreUnavailable)
		a.mustSayWhen(t, true)
		if a.values("X-Undone") != nil || a.values("X-Undone-Trailer") != nil {
			t.Errorf("%s: answered %+v, want nothing of the attempt that was undone", protocol, a)
		}
	}
}

// neverCompletes loses the database when an attempt is to be completed.
type neverCompletes struct{ store.Store }

func (s neverCompletes) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	found, attempt, err := s.Store.Claim(ctx, c)
	if attempt != nil {
		attempt = undone{attempt}
	}
	return found, attempt, err
}

type undone struct{ store.Attempt }

func (a undone) Complete(ctx context.Context, _ store.Record, _ bool) error {
	return errors.Join(errors.New("the database is gone"), a.Release(ctx))
}

// A handler gets its request once, as from the transport, and may do with it what it likes.
func TestRequestIsReceivedOnce(t *testing.T) {
	handler := func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
		req := &chargesv1.CreateChargeRequest{Amount: 7, CardToken: "left over"}
		if err := stream.Receive(req); err != nil {
			return err
		}
		if !proto.Equal(req, request("one")) {
			t.Errorf("received %v", req)
		}
		if err := stream.Receive(req); !errors.Is(err, io.EOF) {
			t.Errorf("the second request was %v, want %v", err, io.EOF)
		}
		return stream.Send(created("ch_1"))
	}
	s := serve(t, byHand(t, backends["memory"](t).guard(t), methodOf(t, "CreateCharge"), handler))
	for protocol := range protocols {
		s.client(t, protocol).charge(t, "", "one").mustBe(t, "ch_1")
		s.client(t, protocol).charge(t, fmt.Sprintf("%x", protocol), "one").mustBe(t, "ch_1")
	}
}

// A handler that does not do what a unary one does gets the same answer the first time and in a replay.
func TestOddHandlers(t *testing.T) {
	failed := connect.NewError(connect.CodeNotFound, "after all")
	tests := map[string]struct {
		handler connect.ServerFunc
		want    connect.Code // 0 for ch_1
	}{
		"an error after a message": {func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			return errors.Join(stream.Send(created("ch_1")), failed)
		}, connect.CodeNotFound},
		"a second message": {func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			if err := stream.Send(created("ch_1")); err != nil {
				return err
			}
			if err := stream.Send(created("ch_2")); connect.CodeOf(err) != connect.CodeInternal {
				t.Errorf("a second message was sent: %v", err)
			}
			return nil
		}, 0},
		"no request received": {func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			return stream.Send(created("ch_1"))
		}, 0},
	}
	for name, test := range tests {
		s := serve(t, byHand(t, backends["memory"](t).guard(t), methodOf(t, "CreateCharge"), test.handler))
		for protocol := range protocols {
			for _, replayed := range []bool{false, true} {
				a := s.client(t, protocol).charge(t, fmt.Sprintf("%x", protocol), "")
				if a.replayed() != replayed || a.code != test.want || a.code == 0 && a.message.GetCharge().GetId() != "ch_1" {
					t.Errorf("%s over %s, replayed %v: %+v, want %v", name, protocol, replayed, a, test.want)
				}
			}
		}
	}
}

// A handler that says nothing has run: a retry does not run it again, or finds it undone.
func TestHandlerSendsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		code   connect.Code
		reason string
	}{
		"memory":        {connect.CodeFailedPrecondition, idempotency.ReasonReplyNotKept},
		"transactional": {connect.CodeInternal, idempotency.ReasonReplyUnencodable},
	} {
		handler := func(context.Context, connect.Spec, connect.ServerStream) error { return nil }
		s := serve(t, byHand(t, backends[name](t).guard(t), methodOf(t, "CreateCharge"), handler))
		s.client(t, "connect proto").charge(t, "k", "") // for which nothing is an empty message
		s.client(t, "grpc").charge(t, "k", "").mustRefuse(t, test.code, test.reason)
	}
}

// A handler that does not speak protobuf with its schema is told so, and a reply that is no message is not kept.
func TestNoProtobufMessages(t *testing.T) {
	var received error
	handler := func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
		received = stream.Receive(new(string))
		return stream.Send("done")
	}
	s := byHand(t, backends["memory"](t).guard(t), methodOf(t, "CreateCharge"), handler)
	call := func() (*recorded, error) {
		stream, info := &recorded{request: request("")}, new(connect.CallInfo)
		info.RequestHeader().Set("Idempotency-Key", "k")
		return stream, s.Call(t.Context(), chargesv1connect.ChargeServiceCreateChargeProcedure, info, stream)
	}
	if stream, err := call(); err != nil || !slices.Equal(stream.sent, []any{"done"}) || received == nil {
		t.Errorf("received %v, sent %v, %v; want an error, and what the handler sent", received, stream.sent, err)
	}
	if stream, err := call(); idempotency.ReasonOf(err) != idempotency.ReasonReplyNotKept || len(stream.sent) > 0 {
		t.Errorf("the retry got %v, %v; want a refusal", stream.sent, err)
	}
}

// What a worker stored without a message is replayed as an empty one.
func TestReplyWithoutMessage(t *testing.T) {
	g := backends["memory"](t).guard(t)
	call := idempotency.Call{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure, Keys: []string{"k"}, Request: request("")}
	if _, _, err := g.Do(t.Context(), call, func(context.Context) idempotency.Reply { return idempotency.Reply{} }); err != nil {
		t.Fatal(err)
	}
	for protocol, c := range guarded(t, g, respond).clients(t) {
		if a := c.charge(t, "k", ""); !a.replayed() || a.code != 0 || a.message.Charge != nil {
			t.Errorf("%s: answered %+v, want an empty message, replayed", protocol, a)
		}
	}
}

// Where no connect.Server stands before it there is no metadata, and so no key.
func TestWithoutServer(t *testing.T) {
	b := backends["memory"](t)
	b.store = neverClaimed{b.store, t}
	ran := false
	next := func(context.Context, connect.Spec, connect.ServerStream) error {
		ran = true
		return nil
	}
	spec := connect.Spec{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure, Schema: methodOf(t, "CreateCharge")}
	err := connectv2.NewServerInterceptor(b.guard(t))(next)(t.Context(), spec, &recorded{request: request("")})
	if err != nil || !ran {
		t.Errorf("%v, has run: %v", err, ran)
	}
}

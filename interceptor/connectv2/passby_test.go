package connectv2_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
)

// keyedContext is a client's, with a key.
func keyedContext(t *testing.T, key string) (context.Context, *connect.CallInfo) {
	t.Helper()
	ctx, info := connect.NewClientContext(within(t))
	info.RequestHeader().Set("Idempotency-Key", key)
	return ctx, info
}

// Reads, streams, other procedures' policies and calls without a key pass by.
func TestPassingBy(t *testing.T) {
	b := backends["memory"](t)
	b.store = neverClaimed{b.store, t}
	g := b.guard(t, idempotency.WithPolicy(func(c idempotency.Call, p idempotency.Policy) idempotency.Policy {
		p.Off = strings.HasSuffix(c.Procedure, "/RefundCharge")
		return p
	}))
	echo := func(_ context.Context, req createRequest) (createResponse, error) {
		return created(req.Description), nil
	}
	s := guarded(t, g, echo)
	for protocol := range protocols {
		c := s.client(t, protocol)
		get, _ := keyedContext(t, "k")
		_, getErr := c.GetCharge(get, new(chargesv1.GetChargeRequest))
		refund, _ := keyedContext(t, "k")
		_, refundErr := c.RefundCharge(refund, new(chargesv1.RefundChargeRequest))
		list, _ := keyedContext(t, "k")
		stream, listErr := c.ListCharges(list, new(chargesv1.ListChargesRequest))
		if err := errors.Join(getErr, refundErr, listErr); err != nil {
			t.Fatal(protocol, err)
		}
		if _, err := stream.Receive(); err != nil {
			t.Errorf("%s: the stream has nothing: %v", protocol, err)
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
		c.charge(t, "", "as it came").mustBe(t, "as it came")
	}
}

// What passes by for its schema's sake gets the very stream that the transport made.
func TestPassingByIsUntouched(t *testing.T) {
	g := backends["memory"](t).guard(t, idempotency.WithKeyRequired())
	for name, spec := range map[string]connect.Spec{
		"no side effects":           {Procedure: "/p.S/M", Schema: methodOf(t, "GetCharge"), IdempotencyLevel: connect.IdempotencyNoSideEffects},
		"streams requests":          {Procedure: "/p.S/M", StreamType: connect.StreamTypeClient},
		"streams responses":         {Procedure: "/p.S/M", StreamType: connect.StreamTypeServer, Schema: methodOf(t, "ListCharges")},
		"streams both":              {Procedure: "/p.S/M", StreamType: connect.StreamTypeBidi, Schema: methodOf(t, "ListCharges")},
		"streams both, no schema":   {Procedure: "/p.S/M", StreamType: connect.StreamTypeBidi},
		"streams requests, and key": {Procedure: "/p.S/Keyed", StreamType: connect.StreamTypeClient},
	} {
		var got connect.ServerStream
		next := func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			got = stream
			return nil
		}
		s := connect.NewServer(connectv2.NewServerInterceptor(g))
		s.Register(connect.Method{Spec: spec, Handler: next})
		info := new(connect.CallInfo)
		if strings.HasSuffix(spec.Procedure, "/Keyed") {
			info.RequestHeader().Set("Idempotency-Key", "k")
		}
		stream := new(recorded)
		if err := s.Call(t.Context(), spec.Procedure, info, stream); err != nil {
			t.Error(name, err)
		}
		if got != connect.ServerStream(stream) {
			t.Errorf("%s: the handler got a %T, want the transport's own stream", name, got)
		}
	}
}

// recorded is a transport's stream that records what is done with it.
type recorded struct {
	request     proto.Message
	sent        []any
	headersSent int
	onSend      func()
}

func (s *recorded) Receive(dst any) error {
	if s.request == nil {
		return io.EOF
	}
	proto.Merge(dst.(proto.Message), s.request)
	s.request = nil
	return nil
}

func (s *recorded) SendHeaders() error {
	s.headersSent++
	return nil
}

func (s *recorded) Send(msg any) error {
	if s.onSend != nil {
		s.onSend()
	}
	s.sent = append(s.sent, msg)
	return nil
}

// A keyed call of a procedure without a schema, which may be one that the server does not have, is refused and does not
// run. Without a key it runs, and so it does where the policy is off.
func TestWithoutSchema(t *testing.T) {
	off := idempotency.WithPolicy(func(_ idempotency.Call, p idempotency.Policy) idempotency.Policy {
		p.Off = true
		return p
	})
	for name, spec := range map[string]connect.Spec{
		"registered": {Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure},
		"unknown":    {Procedure: "/charges.v1.ChargeService/Elsewhere"},
		"other schema system": {
			Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure, Schema: reflect.TypeFor[chargesv1.CreateChargeRequest](),
		},
	} {
		for protocol := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				var runs atomic.Int32
				run := func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
					runs.Add(1)
					req := new(chargesv1.CreateChargeRequest)
					if err := stream.Receive(req); err != nil {
						return err
					}
					return stream.Send(created(req.Description))
				}
				b := backends["memory"](t)
				b.store = neverClaimed{b.store, t}
				call := func(key string, opts ...idempotency.Option) answer {
					inner := connect.NewServer(connectv2.NewServerInterceptor(b.guard(t, opts...)))
					if name == "unknown" {
						// Registered so that the service's other procedures are routed to.
						chargesv1connect.RegisterChargeServiceHandler(inner, service{create: respond})
						inner.SetUnknownHandler(run)
					} else {
						inner.Register(connect.Method{Spec: spec, Handler: run})
					}
					ctx, info := keyedContext(t, key)
					if key == "" {
						info.RequestHeader().Delete("Idempotency-Key")
					}
					res := new(chargesv1.CreateChargeResponse)
					err := serve(t, inner).client(t, protocol).raw.CallUnary(ctx, connect.Spec{Procedure: spec.Procedure}, request("as it came"), res)
					return answerOf(t, info, res, err)
				}
				call("k").mustRefuse(t, connect.CodeInternal, idempotency.ReasonMisconfigured)
				if runs.Load() != 0 {
					t.Fatal("the call ran unguarded")
				}
				call("").mustBe(t, "as it came")
				call("k", off).mustBe(t, "as it came")
			})
		}
	}
}

// A request that cannot be read is the client's fault, as without a guard, and leaves no row.
func TestRequestCannotBeRead(t *testing.T) {
	b := backends["memory"](t)
	b.store = neverClaimed{b.store, t}
	s := guarded(t, b.guard(t), respond)
	for _, protocol := range []string{"connect proto", "grpc", "grpc-web"} {
		ctx, info := keyedContext(t, "k")
		// A field of another wire type where the procedure has a string that must be UTF-8.
		wrong := &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Amount: 1}}
		wrong.ProtoReflect().SetUnknown([]byte{0x12, 0x02, 0xff, 0xfe}) // field 2, two bytes that are not UTF-8
		res := new(chargesv1.CreateChargeResponse)
		err := s.client(t, protocol).raw.CallUnary(ctx, connect.Spec{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure}, wrong, res)
		if a := answerOf(t, info, res, err); a.code != connect.CodeInvalidArgument {
			t.Errorf("%s: %+v, want InvalidArgument", protocol, a)
		}
	}
}

package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1simple"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

type createFunc = func(context.Context, createRequest) (createResponse, error)

// answers are handlers, each with another kind of answer. All are kept here: what is kept by default is the guard's to test.
func answers(t *testing.T) map[string]createFunc {
	t.Helper()
	message := &chargesv1.Charge{
		Id: "ch_1", Amount: 1<<53 + 1, Currency: "USD", Description: "tab\t nul\x00 \\u0000 é 😀", Status: 99,
		CreateTime: &timestamppb.Timestamp{Seconds: 1 << 40, Nanos: -5},
	}
	message.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
	fails := func(err func() error) createFunc {
		return func(context.Context, createRequest) (createResponse, error) {
			return nil, err()
		}
	}
	all := map[string]createFunc{
		"an empty message": func(context.Context, createRequest) (createResponse, error) {
			return connect.NewResponse(new(chargesv1.CreateChargeResponse)), nil
		},
		"a message with header and trailer": func(ctx context.Context, _ createRequest) (createResponse, error) {
			charge := proto.CloneOf(message)
			charge.CreateTime = timestamppb.New(charge.CreateTime.AsTime().AddDate(-30000, 0, 0)) // within what JSON can write
			res := connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: charge})
			res.Header()["X-Several"] = []string{"one", "two, three"}
			res.Header().Set("X-Digest-Bin", connect.EncodeBinaryHeader([]byte{0, 255, 7}))
			res.Trailer()["X-Cost"] = []string{"4", "2"}
			info, _ := connect.CallInfoForHandlerContext(ctx)
			info.ResponseHeader().Add("X-Several", "zero")
			info.ResponseTrailer().Add("X-Cost", "0")
			return res, nil
		},
		"a plain error": fails(func() error { return errors.New("plain") }),
		"a wrapped error": fails(func() error {
			return fmt.Errorf("outside: %w", connect.NewError(connect.CodeNotFound, errors.New("inside")))
		}),
		"cancelled":             fails(func() error { return fmt.Errorf("so: %w", context.Canceled) }),
		"the deadline":          fails(func() error { return context.DeadlineExceeded }),
		"an error without text": fails(func() error { return connect.NewError(connect.CodeNotFound, nil) }),
		"an error handed on": fails(func() error {
			e := connect.NewWireError(connect.CodeNotFound, errors.New("theirs"))
			e.Meta().Set("X-Theirs", "1")
			return e
		}),
		"an error with metadata": fails(func() error { return errorWithAll(t) }),
		"an error after the simple API's header": func(ctx context.Context, _ createRequest) (createResponse, error) {
			info, _ := connect.CallInfoForHandlerContext(ctx)
			info.ResponseHeader().Set("X-Before", "the error")
			info.ResponseTrailer().Set("X-After", "the error")
			return nil, errorWithAll(t)
		},
	}
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		all["code "+c.String()] = fails(func() error { return connect.NewError(c, errors.New("no: "+c.String())) })
	}
	return all
}

func errorWithAll(t *testing.T) *connect.Error {
	t.Helper()
	e := connect.NewError(connect.CodeFailedPrecondition, errors.New("declined:\n é 100%"))
	known, err := connect.NewErrorDetail(&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := connect.NewErrorDetail(&anypb.Any{TypeUrl: "type.googleapis.com/elsewhere.v1.NotLinked", Value: []byte{8, 1, 0xff}})
	if err != nil {
		t.Fatal(err)
	}
	e.AddDetail(known)
	e.AddDetail(unknown)
	e.Meta()["X-Several"] = []string{"a", "b"}
	e.Meta().Set("X-Raw-Bin", connect.EncodeBinaryHeader([]byte{1, 0, 254}))
	return e
}

// A retry's answer, over each protocol, is what a fresh answer over it would have been, whichever protocol the first call
// used, but for the mark.
func TestReplayEqualsAFreshAnswer(t *testing.T) {
	keepAll := idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true })
	for store, makeBackend := range backends {
		t.Run(store, func(t *testing.T) {
			b := makeBackend(t)
			g := b.guard(t, keepAll)
			for name, create := range answers(t) {
				s := guarded(t, g, service{create: create})
				for _, first := range slices.Sorted(maps.Keys(protocols)) {
					key := name + "/" + first
					key = fmt.Sprintf("%x", key)
					_, _ = s.client(t, first).CreateCharge(within(t), charge(key, ""))
					for retry := range protocols {
						client := s.client(t, retry)
						res, err := client.CreateCharge(within(t), charge("", ""))
						fresh := answerOf(t, res, err)
						res, err = client.CreateCharge(within(t), charge(key, ""))
						replay := answerOf(t, res, err)
						if !replay.replayed() {
							t.Errorf("%s, first over %s, then over %s: not marked as a replay: %+v", name, first, retry, replay)
						}
						if !replay.equal(fresh) {
							t.Errorf("%s, first over %s, then over %s:\nreplay %+v\nfresh  %+v", name, first, retry, replay, fresh)
						}
					}
				}
			}
		})
	}
}

// The first caller gets what an unguarded one would, unmarked.
func TestFirstAnswerIsUntouched(t *testing.T) {
	g := backends["memory"](t).guard(t)
	for name, create := range answers(t) {
		s := guarded(t, g, service{create: create})
		for protocol := range protocols {
			client := s.client(t, protocol)
			res, err := client.CreateCharge(within(t), charge("", ""))
			unguarded := answerOf(t, res, err)
			res, err = client.CreateCharge(within(t), charge(fmt.Sprintf("%x", name+protocol), ""))
			if first := answerOf(t, res, err); !first.equal(unguarded) {
				t.Errorf("%s over %s:\nfirst     %+v\nunguarded %+v", name, protocol, first, unguarded)
			}
		}
	}
}

// What an outer interceptor puts on an answer is not the run's: it is there once, fresh or replayed.
func TestOuterMetadataIsNotKept(t *testing.T) {
	var calls int
	outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			calls++
			info, _ := connect.CallInfoForHandlerContext(ctx)
			info.ResponseHeader().Add("X-Call", fmt.Sprint(calls))
			return next(ctx, req)
		}
	})
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		info, _ := connect.CallInfoForHandlerContext(ctx)
		info.ResponseHeader().Add("X-Call", "run")
		return created("ch_1"), nil
	}
	client := guarded(t, backends["memory"](t).guard(t), service{create: create}, outer).client(t, "grpc")
	for _, want := range []string{"1", "2"} {
		res, err := client.CreateCharge(within(t), charge("k", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header()["X-Call"]; !slices.Equal(got, []string{want, "run"}) {
			t.Errorf("X-Call is %v, want %s and run", got, want)
		}
	}
}

// What a run put in the place of what an outer interceptor had set, or took away, is so in its replay too.
func TestReplacedOuterMetadata(t *testing.T) {
	set := func(ctx context.Context, from string) {
		info, _ := connect.CallInfoForHandlerContext(ctx)
		for _, into := range []http.Header{info.ResponseHeader(), info.ResponseTrailer()} {
			into.Set("X-Replaced", from)
			into.Add("X-Added", from)
			if into.Set("X-Removed", from); from == "run" {
				into.Del("X-Removed")
			}
		}
	}
	outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			set(ctx, "outer")
			return next(ctx, req)
		}
	})
	for name, answer := range map[string]error{"a message": nil, "an error": connect.NewError(connect.CodeNotFound, nil)} {
		create := func(ctx context.Context, _ createRequest) (createResponse, error) {
			set(ctx, "run")
			return created("ch_1"), answer
		}
		s := guarded(t, backends["memory"](t).guard(t), service{create: create}, outer)
		for protocol := range protocols {
			key := fmt.Sprintf("%x", protocol)
			res, err := s.client(t, protocol).CreateCharge(within(t), charge(key, ""))
			first := answerOf(t, res, err)
			if replaced := first.header["X-Replaced"]; len(replaced) == 0 || slices.Contains(replaced, "outer") {
				t.Fatalf("%s over %s: the first answer has %v", name, protocol, first.header)
			}
			res, err = s.client(t, protocol).CreateCharge(within(t), charge(key, ""))
			replay := answerOf(t, res, err)
			if !replay.replayed() || !replay.equal(first) {
				t.Errorf("%s over %s:\nreplay %+v\nfirst  %+v", name, protocol, replay, first)
			}
		}
	}
}

// Credentials are the first caller's own.
func TestCredentialsAreNotReplayed(t *testing.T) {
	create := func(context.Context, createRequest) (createResponse, error) {
		res := created("ch_1")
		res.Header().Set("Set-Cookie", "session=first")
		res.Header().Set("X-Secret", "first")
		return res, nil
	}
	client := guarded(t, backends["memory"](t).guard(t, idempotency.WithoutMetadata("X-Secret")), service{create: create}).client(t, "connect proto")
	for _, want := range []int{1, 0} {
		res, err := client.CreateCharge(within(t), charge("k", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(res.Header()["Set-Cookie"]) + len(res.Header()["X-Secret"]); got != 2*want {
			t.Errorf("%d of both headers, want %d: %v", got, 2*want, res.Header())
		}
	}
}

// Outer interceptors get a replay in the procedure's own response type, once it is known.
func TestReplayHasTheConcreteType(t *testing.T) {
	var types []string
	outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			res, err := next(ctx, req)
			types = append(types, fmt.Sprintf("%T", res))
			return res, err
		}
	})
	create := func(context.Context, createRequest) (createResponse, error) {
		return created("ch_1"), nil
	}
	client := guarded(t, backends["memory"](t).guard(t), service{create: create}, outer).client(t, "connect proto")
	for range 2 {
		if _, err := client.CreateCharge(within(t), charge("k", "")); err != nil {
			t.Fatal(err)
		}
	}
	if types[0] != types[1] {
		t.Errorf("the types are %v, want one", types)
	}
}

// A server that has just started replays what another one stored, over each protocol.
func TestReplayByAnotherServer(t *testing.T) {
	b := backends["leased"](t)
	create := func(context.Context, createRequest) (createResponse, error) {
		return created("ch_1"), nil
	}
	if _, err := guarded(t, b.guard(t), service{create: create}).client(t, "grpc").CreateCharge(within(t), charge("k", "")); err != nil {
		t.Fatal(err)
	}
	for protocol := range protocols {
		res, err := guarded(t, b.guard(t), service{}).client(t, protocol).CreateCharge(within(t), charge("k", ""))
		if err != nil || res.Msg.GetCharge().GetId() != "ch_1" {
			t.Errorf("%s: %v, %v; want the first server's reply", protocol, res, err)
		}
	}
}

// A handler of the simple API is replayed with what it set on the call info.
func TestSimpleAPI(t *testing.T) {
	_, handler := chargesv1simple.NewChargeServiceHandler(simple{}, connect.WithInterceptors(interceptor.New(backends["memory"](t).guard(t))))
	client := serve(t, handler).client(t, "grpc-web")
	for _, replayed := range []bool{false, true} {
		res, err := client.CreateCharge(within(t), charge("k", ""))
		if err != nil {
			t.Fatal(err)
		}
		a := answerOf(t, res, err)
		if a.replayed() != replayed || a.header.Get("X-Simple") != "yes" || a.trailer.Get("X-Simple-Trailer") != "yes" {
			t.Errorf("replayed %v: %+v", replayed, a)
		}
	}
}

type simple struct {
	chargesv1simple.UnimplementedChargeServiceHandler
}

func (simple) CreateCharge(ctx context.Context, _ *chargesv1.CreateChargeRequest) (*chargesv1.CreateChargeResponse, error) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	info.ResponseHeader().Set("X-Simple", "yes")
	info.ResponseTrailer().Set("X-Simple-Trailer", "yes")
	return &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: "ch_1"}}, nil
}

// A handler that was built by hand has no schema; its replies are known by their type's name.
func TestHandlerWithoutSchema(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(chargesv1connect.ChargeServiceCreateChargeProcedure, connect.NewUnaryHandler(
		chargesv1connect.ChargeServiceCreateChargeProcedure,
		func(context.Context, createRequest) (createResponse, error) {
			return created("ch_1"), nil
		},
		connect.WithInterceptors(interceptor.New(backends["memory"](t).guard(t)))))
	client := serve(t, mux).client(t, "grpc")
	for _, replayed := range []bool{false, true} {
		res, err := client.CreateCharge(within(t), charge("k", ""))
		if a := answerOf(t, res, err); a.replayed() != replayed || a.message.GetCharge().GetId() != "ch_1" {
			t.Errorf("replayed %v: %+v", replayed, a)
		}
	}
}

package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// answers are handlers, each with another kind of answer. All are kept here: what is kept by default is the guard's to test.
func answers(t *testing.T) map[string]createFunc {
	t.Helper()
	fails := func(err error) createFunc {
		return func(context.Context, createRequest) (createResponse, error) { return nil, err }
	}
	withMetadata := func(err error) createFunc {
		return func(ctx context.Context, _ createRequest) (createResponse, error) {
			info, _ := connect.CallInfoForServerContext(ctx)
			info.ResponseHeader().SetValues("X-Several", []string{"one", "two, three"})
			info.ResponseHeader().Set("x-digest-bin", connect.EncodeBinaryHeader([]byte{0, 255, 7}))
			info.ResponseTrailer().SetValues("X-Cost", []string{"4", "2"})
			info.ResponseTrailer().Set("X-Raw-Bin", connect.EncodeBinaryHeader([]byte{1, 0, 254}))
			return &chargesv1.CreateChargeResponse{Charge: oddCharge()}, err
		}
	}
	all := map[string]createFunc{
		"an empty message": func(context.Context, createRequest) (createResponse, error) {
			return new(chargesv1.CreateChargeResponse), nil
		},
		"no message":                          func(context.Context, createRequest) (createResponse, error) { return nil, nil },
		"a message with header and trailer":   withMetadata(nil),
		"an error with header and trailer":    withMetadata(errorWithDetails(t)),
		"a plain error":                       fails(errors.New("the password of the database is …")),
		"a wrapped error":                     fails(fmt.Errorf("outside: %w", connect.NewError(connect.CodeNotFound, "inside"))),
		"a typed nil":                         fails(fmt.Errorf("so: %w", (*connect.Error)(nil))),
		"cancelled":                           fails(fmt.Errorf("so: %w", context.Canceled)),
		"the deadline":                        fails(context.DeadlineExceeded),
		"an error without text":               fails(connect.NewError(connect.CodeNotFound, "")),
		"an error with a cause":               fails(connect.NewError(connect.CodeNotFound, "no such charge").WithCause(context.Canceled)),
		"another server's error":              fails(errorWithDetails(t).WithRemote()),
		"another server's error, with header": withMetadata(errorWithDetails(t).WithRemote()),
		"a code that has no name":             fails(connect.NewError(99, "what is this?")),
		"no code":                             fails(connect.NewError(0, "none")),
	}
	return all
}

// codes are handlers that fail, one with each code.
func codes() map[string]createFunc {
	all := make(map[string]createFunc)
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		all[c.String()] = func(context.Context, createRequest) (createResponse, error) {
			return nil, connect.NewError(c, "no: "+c.String())
		}
	}
	return all
}

// oddCharge has what encodings may lose.
func oddCharge() *chargesv1.Charge {
	c := &chargesv1.Charge{
		Id: "ch_1", Amount: 1<<53 + 1, Currency: "USD", Description: "tab\t nul\x00 \\u0000 é 😀", Status: 99,
		CreateTime: &timestamppb.Timestamp{Seconds: 1 << 30, Nanos: 5},
	}
	c.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
	return c
}

func errorWithDetails(t *testing.T) *connect.Error {
	t.Helper()
	known, err := connectproto.NewErrorDetail(&chargesv1.DeclineDetail{DeclineCode: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	return connect.NewError(connect.CodeFailedPrecondition, "declined:\n é 100%").
		WithDetail(known).
		WithDetail(&connect.ErrorDetail{Type: "elsewhere.v1.NotLinked", Value: []byte{8, 1, 0xff}}).
		WithDetail(&connect.ErrorDetail{Type: "elsewhere.com/elsewhere.v1.NotLinked"})
}

// A retry's answer, over each protocol, is what a fresh answer over it would have been, whichever protocol the first call
// used, but for the mark.
func TestReplayEqualsAFreshAnswer(t *testing.T) {
	keepAll := idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true })
	for store, makeBackend := range backends {
		t.Run(store, func(t *testing.T) {
			g := makeBackend(t).guard(t, keepAll)
			all := answers(t)
			if store == "memory" { // what makes a code another is not the store's
				maps.Copy(all, codes())
			}
			for name, create := range all {
				clients := guarded(t, g, create).clients(t)
				for first := range clients {
					key := fmt.Sprintf("%x", name+first)
					_ = clients[first].charge(t, key, "")
					for retry, c := range clients {
						fresh := c.charge(t, "", "")
						replay := c.charge(t, key, "")
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

// For a deadline of package os the in-process transport tells a client another code than connecthttp does; so does a replay.
func TestFileDeadline(t *testing.T) {
	keepAll := idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true })
	create := func(context.Context, createRequest) (createResponse, error) { return nil, os.ErrDeadlineExceeded }
	s := guarded(t, backends["memory"](t).guard(t, keepAll), create)
	for protocol := range protocols {
		c := s.client(t, protocol)
		key := fmt.Sprintf("%x", protocol)
		first, replay := c.charge(t, key, ""), c.charge(t, key, "")
		if !replay.replayed() || !replay.equal(first) {
			t.Errorf("%s:\nfirst  %+v\nreplay %+v", protocol, first, replay)
		}
	}
}

// The first caller gets what an unguarded one would, unmarked.
func TestFirstAnswerIsUntouched(t *testing.T) {
	g := backends["memory"](t).guard(t)
	for name, create := range answers(t) {
		for protocol, c := range guarded(t, g, create).clients(t) {
			unguarded := c.charge(t, "", "")
			if first := c.charge(t, fmt.Sprintf("%x", name+protocol), ""); !first.equal(unguarded) {
				t.Errorf("%s over %s:\nfirst     %+v\nunguarded %+v", name, protocol, first, unguarded)
			}
		}
	}
}

// What a handler tells the log is not told to the client, neither the first time nor in a replay.
func TestPlainErrorHasNoText(t *testing.T) {
	keepAll := idempotency.WithKeep(func(context.Context, idempotency.Call, idempotency.Reply) bool { return true })
	for name, test := range map[string]struct {
		err  error
		want connect.Code
	}{
		"plain":  {errors.New("secret"), connect.CodeUnknown},
		"remote": {errorWithDetails(t).WithRemote(), connect.CodeInternal},
	} {
		create := func(context.Context, createRequest) (createResponse, error) { return nil, test.err }
		s := guarded(t, backends["memory"](t).guard(t, keepAll), create)
		for protocol := range protocols {
			for _, replayed := range []bool{false, true} {
				a := s.client(t, protocol).charge(t, fmt.Sprintf("%x", protocol), "")
				if a.replayed() != replayed || a.code != test.want || a.text != "" || len(a.details) != 0 {
					t.Errorf("%s over %s, replayed %v: %+v, want %v alone", name, protocol, replayed, a, test.want)
				}
			}
		}
	}
}

// What an outer interceptor puts on an answer is not the run's: it is there once, fresh or replayed.
func TestOuterMetadataIsNotKept(t *testing.T) {
	calls := 0
	outer := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			calls++
			info, _ := connect.CallInfoForServerContext(ctx)
			info.ResponseHeader().Add("X-Call", fmt.Sprint(calls))
			info.ResponseTrailer().Set("X-Outer", "yes")
			return next(ctx, spec, stream)
		}
	}
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		info, _ := connect.CallInfoForServerContext(ctx)
		info.ResponseHeader().Add("X-Call", "run")
		return created("ch_1"), nil
	}
	c := guarded(t, backends["memory"](t).guard(t), create, outer).client(t, "grpc")
	for _, want := range []string{"1", "2"} {
		a := c.charge(t, "k", "")
		if !slices.Equal(a.header["X-Call"], []string{want, "run"}) || !slices.Equal(a.trailer["X-Outer"], []string{"yes"}) {
			t.Errorf("answered %+v, want X-Call of %s and run, and X-Outer once", a, want)
		}
	}
}

// What a run put in the place of what an outer interceptor had set, or took away, is so in its replay too.
func TestReplacedOuterMetadata(t *testing.T) {
	set := func(ctx context.Context, from string) {
		info, _ := connect.CallInfoForServerContext(ctx)
		for _, into := range []*connect.Header{info.ResponseHeader(), info.ResponseTrailer()} {
			into.Set("X-Replaced", from)
			into.Add("X-Added", from)
			if into.Set("X-Removed", from); from == "run" {
				into.Delete("X-Removed")
			}
		}
	}
	outer := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			set(ctx, "outer")
			return next(ctx, spec, stream)
		}
	}
	for name, answer := range map[string]error{"a message": nil, "an error": connect.NewError(connect.CodeNotFound, "no such card")} {
		create := func(ctx context.Context, _ createRequest) (createResponse, error) {
			set(ctx, "run")
			return created("ch_1"), answer
		}
		for protocol, c := range guarded(t, backends["memory"](t).guard(t), create, outer).clients(t) {
			key := fmt.Sprintf("%x", protocol)
			first := c.charge(t, key, "")
			if replaced := first.header["X-Replaced"]; len(replaced) == 0 || slices.Contains(replaced, "outer") {
				t.Fatalf("%s over %s: the first answer has %v", name, protocol, first.header)
			}
			replay := c.charge(t, key, "")
			if !replay.replayed() || !replay.equal(first) {
				t.Errorf("%s over %s:\nreplay %+v\nfirst  %+v", name, protocol, replay, first)
			}
		}
	}
}

// Credentials are the first caller's own.
func TestCredentialsAreNotReplayed(t *testing.T) {
	create := func(ctx context.Context, _ createRequest) (createResponse, error) {
		info, _ := connect.CallInfoForServerContext(ctx)
		info.ResponseHeader().Set("Set-Cookie", "session=first")
		info.ResponseHeader().Set("X-Secret", "first")
		return created("ch_1"), nil
	}
	c := guarded(t, backends["memory"](t).guard(t, idempotency.WithoutMetadata("X-Secret")), create).client(t, "connect proto")
	for _, want := range []int{1, 0} {
		a := c.charge(t, "k", "")
		if got := len(a.header["Set-Cookie"]) + len(a.header["X-Secret"]); got != 2*want {
			t.Errorf("%d of both headers, want %d: %+v", got, 2*want, a)
		}
	}
}

// An error that Connect v1 stored has metadata of its own, which a client finds where v1 would have sent it; and details
// whose type URLs are of any kind.
func TestErrorOfConnectV1(t *testing.T) {
	details := []*anypb.Any{{TypeUrl: "type.googleapis.com/elsewhere.v1.NotLinked", Value: []byte{8, 1}}, {TypeUrl: "elsewhere.com/v1.Odd"}}
	stored := idempotency.Reply{
		Error: &idempotency.Error{
			Code: code.Code_NOT_FOUND, Message: "no such card", Details: details,
			Metadata: idempotency.Metadata{"x-error": {"one", "two"}, "x-both": {"error"}},
		},
		Header:  idempotency.Metadata{"x-header": {"h"}, "x-both": {"header"}},
		Trailer: idempotency.Metadata{"x-trailer": {"t"}},
	}
	g := backends["memory"](t).guard(t)
	call := idempotency.Call{Procedure: "/charges.v1.ChargeService/CreateCharge", Keys: []string{"k"}, Request: request("")}
	if _, _, err := g.Do(t.Context(), call, func(context.Context) idempotency.Reply { return stored }); err != nil {
		t.Fatal(err)
	}
	s := guarded(t, g, respond)
	for protocol := range protocols {
		a := s.client(t, protocol).charge(t, "k", "")
		if !a.replayed() || a.code != connect.CodeNotFound || a.text != "no such card" || len(a.details) != 2 || a.details[0].Type != "elsewhere.v1.NotLinked" {
			t.Errorf("%s: %+v, want the stored error", protocol, a)
		}
		header, trailer := map[string][]string{"X-Header": {"h"}, "X-Both": {"header"}}, map[string][]string{"X-Trailer": {"t"}}
		ofError := header
		if slices.Contains([]string{"grpc", "grpc json", "grpc-web"}, protocol) {
			ofError = trailer
		}
		ofError["X-Error"] = []string{"one", "two"}
		ofError["X-Both"] = append(ofError["X-Both"], "error")
		if !maps.EqualFunc(a.header, header, slices.Equal) || !maps.EqualFunc(a.trailer, trailer, slices.Equal) {
			t.Errorf("%s: header %v and trailer %v, want %v and %v", protocol, a.header, a.trailer, header, trailer)
		}
	}
}

// A server that has just started replays what another one stored.
func TestReplayByAnotherServer(t *testing.T) {
	b := backends["leased"](t)
	guarded(t, b.guard(t), respond).client(t, "grpc").charge(t, "k", "").mustBe(t, "ch_1")
	for protocol := range protocols {
		a := guarded(t, b.guard(t), nil).client(t, protocol).charge(t, "k", "")
		a.mustBe(t, "ch_1")
	}
}

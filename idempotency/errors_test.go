package idempotency_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func detail(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	d, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReasonOf(t *testing.T) {
	t.Parallel()
	ours := detail(t, &errdetails.ErrorInfo{Domain: idempotency.Domain, Reason: idempotency.ReasonKeyReused})
	theirs := detail(t, &errdetails.ErrorInfo{Domain: "payments.example", Reason: idempotency.ReasonKeyReused})
	retry := detail(t, &errdetails.RetryInfo{})
	broken := &anypb.Any{TypeUrl: ours.TypeUrl, Value: []byte{0xff}}
	of := func(details ...*anypb.Any) error {
		return &idempotency.Error{Code: code.Code_ABORTED, Details: details}
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nothing":                    {nil, ""},
		"another error":              {errors.New("no"), ""},
		"no details":                 {of(), ""},
		"ours":                       {of(ours), idempotency.ReasonKeyReused},
		"ours behind others":         {of(retry, theirs, broken, ours), idempotency.ReasonKeyReused},
		"ours, wrapped":              {fmt.Errorf("call: %w", of(ours)), idempotency.ReasonKeyReused},
		"another server's":           {of(theirs), ""},
		"one that does not parse":    {of(broken), ""},
		"ours as the cause of other": {&idempotency.Error{Code: code.Code_INTERNAL, Cause: of(ours)}, ""},
	} {
		if got := idempotency.ReasonOf(c.err); got != c.want {
			t.Errorf("%s: ReasonOf = %q, want %q", name, got, c.want)
		}
	}
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) *anypb.Any {
		return detail(t, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	}
	of := func(details ...*anypb.Any) error {
		return &idempotency.Error{Code: code.Code_ABORTED, Details: details}
	}
	for name, c := range map[string]struct {
		err  error
		want time.Duration
		ok   bool
	}{
		"nothing":                 {nil, 0, false},
		"another error":           {errors.New("no"), 0, false},
		"no details":              {of(), 0, false},
		"one":                     {of(in(time.Second)), time.Second, true},
		"one, wrapped":            {fmt.Errorf("call: %w", of(in(time.Second))), time.Second, true},
		"the longest of several":  {of(in(time.Second), in(3*time.Second), in(2*time.Second)), 3 * time.Second, true},
		"less than zero":          {of(in(-time.Second)), 0, true},
		"one that says nothing":   {of(detail(t, &errdetails.RetryInfo{})), 0, true},
		"one that does not parse": {of(&anypb.Any{TypeUrl: in(0).TypeUrl, Value: []byte{0xff}}), 0, false},
		"another detail":          {of(detail(t, &errdetails.ErrorInfo{})), 0, false},
	} {
		if got, ok := idempotency.RetryDelay(c.err); got != c.want || ok != c.ok {
			t.Errorf("%s: RetryDelay = %v, %v, want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestAnErrorsTextIsForLogs(t *testing.T) {
	t.Parallel()
	cause := errors.New("the cause")
	e := &idempotency.Error{Code: code.Code_NOT_FOUND, Message: "no such card", Cause: cause}
	if got := e.Error(); got != "NOT_FOUND: no such card: the cause" {
		t.Errorf("with a cause it reads %q", got)
	}
	if !errors.Is(e, cause) {
		t.Error("the cause is not in its chain")
	}
	e.Cause = nil
	if got := e.Error(); got != "NOT_FOUND: no such card" {
		t.Errorf("without a cause it reads %q", got)
	}
}

func TestAReplysCode(t *testing.T) {
	t.Parallel()
	for want, reply := range map[code.Code]idempotency.Reply{
		code.Code_OK:        created("ch_1"),
		code.Code_NOT_FOUND: failed(code.Code_NOT_FOUND),
		code.Code_UNKNOWN:   failed(code.Code_OK), // an error is no success
		code.Code_ABORTED:   {Message: created("ch_1").Message, Error: failed(code.Code_ABORTED).Error},
	} {
		if got := reply.Code(); got != want {
			t.Errorf("the code of %v is %v, want %v", reply, got, want)
		}
	}
}

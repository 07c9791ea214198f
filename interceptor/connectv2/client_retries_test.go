package connectv2_test

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// What is sent again is decided alike over each protocol, from what comes over the wire; the last error is handed on.
func TestClientRetries(t *testing.T) {
	refuse := func(code connect.Code, messages ...proto.Message) func(*connect.CallInfo) error {
		e := connect.NewError(code, "no")
		for _, m := range messages {
			d, err := connectproto.NewErrorDetail(m)
			if err != nil {
				t.Fatal(err)
			}
			e = e.WithDetail(d)
		}
		return func(*connect.CallInfo) error { return e }
	}
	with := func(where func(*connect.CallInfo) *connect.Header, name, value string) func(*connect.CallInfo) error {
		return func(info *connect.CallInfo) error {
			where(info).Set(name, value)
			return unavailable(info)
		}
	}
	ours := &errdetails.ErrorInfo{Domain: idempotency.Domain, Reason: idempotency.ReasonTxConflict}
	foreign := &errdetails.ErrorInfo{Domain: "elsewhere.example", Reason: idempotency.ReasonTxConflict}
	soon := &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
	tests := map[string]struct {
		fail     func(*connect.CallInfo) error
		attempts int
	}{
		"unavailable":                  {unavailable, 3},
		"a conflict":                   {refuse(connect.CodeAborted, ours, soon), 3},
		"aborted elsewhere":            {refuse(connect.CodeAborted, foreign, soon), 1},
		"exhausted with RetryInfo":     {refuse(connect.CodeResourceExhausted, soon), 3},
		"exhausted":                    {refuse(connect.CodeResourceExhausted), 1},
		"canceled by the server":       {refuse(connect.CodeCanceled), 1},
		"internal":                     {refuse(connect.CodeInternal), 1},
		"unknown":                      {func(*connect.CallInfo) error { return errors.New("unexpected EOF") }, 1},
		"come back, in the trailer":    {with((*connect.CallInfo).ResponseTrailer, "grpc-retry-pushback-ms", "1"), 3},
		"do not, in the trailer":       {with((*connect.CallInfo).ResponseTrailer, "grpc-retry-pushback-ms", "-1"), 1},
		"do not, in the header":        {with((*connect.CallInfo).ResponseHeader, "grpc-retry-pushback-ms", "-1"), 1},
		"past the deadline":            {with((*connect.CallInfo).ResponseHeader, "retry-after", "3600"), 1},
		"past it, said in the trailer": {with((*connect.CallInfo).ResponseTrailer, "retry-after", "3600"), 1},
	}
	for name, test := range tests {
		for protocol := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				s, seen := watched(t, 100, test.fail)
				ctx := within(t)
				_, err := s.retrying(t, protocol, retrier(t, client.WithMaxAttempts(3), client.WithMaxElapsed(24*time.Hour))).
					CreateCharge(ctx, request(""))
				e, ok := errors.AsType[*connect.Error](err)
				if len(seen.keys) != test.attempts || !ok || e.Code() != connect.CodeOf(test.fail(new(connect.CallInfo))) || !e.IsRemote() {
					t.Errorf("%v, sent %d times; want the server's own, sent %d times", err, len(seen.keys), test.attempts)
				}
				if ctx.Err() != nil {
					t.Error("the deadline has passed")
				}
			})
		}
	}
}

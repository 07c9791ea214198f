package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// never is asked for where a call is not sent again.
const never = -1

type failureTest struct {
	failure client.Failure
	asked   time.Duration // what the server asks for
}

func failed(t *testing.T, c code.Code, messages ...proto.Message) client.Failure {
	t.Helper()
	return client.Failure{Code: c, Details: details(t, messages...)}
}

func retryAfter(values ...string) client.Failure {
	return client.Failure{Code: code.Code_UNAVAILABLE, RetryAfter: values}
}

func pushback(values ...string) client.Failure {
	return client.Failure{Code: code.Code_UNAVAILABLE, Pushback: values}
}

// Codes and reasons decide whether a call is sent again.
func TestWhatIsSentAgain(t *testing.T) {
	foreign := &errdetails.ErrorInfo{Domain: "elsewhere.example", Reason: idempotency.ReasonKeyInProgress}
	inProgress, conflict := reason(idempotency.ReasonKeyInProgress), reason(idempotency.ReasonTxConflict)
	malformed := &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: []byte{0xff}}
	tests := map[string]failureTest{
		"unavailable":                     {failed(t, code.Code_UNAVAILABLE), 0},
		"in progress":                     {failed(t, code.Code_ABORTED, inProgress, retryInfo(1500*time.Millisecond)), 1500 * time.Millisecond},
		"a conflict":                      {failed(t, code.Code_ABORTED, conflict, retryInfo(0)), 0},
		"our reason beside a foreign one": {failed(t, code.Code_ABORTED, conflict, foreign), 0},
		"aborted":                         {failed(t, code.Code_ABORTED, retryInfo(0)), never},
		"aborted in another domain":       {failed(t, code.Code_ABORTED, foreign), never},
		"aborted for another reason":      {failed(t, code.Code_ABORTED, reason("OTHER")), never},
		"our reason with another code":    {failed(t, code.Code_INTERNAL, inProgress), never},
		"exhausted":                       {client.Failure{Code: code.Code_RESOURCE_EXHAUSTED, RetryAfter: []string{"1"}}, never},
		"exhausted with RetryInfo":        {failed(t, code.Code_RESOURCE_EXHAUSTED, retryInfo(2*time.Second)), 2 * time.Second},
		"exhausted, malformed RetryInfo":  {client.Failure{Code: code.Code_RESOURCE_EXHAUSTED, Details: []*anypb.Any{malformed}}, never},
	}
	for n := range code.Code_name {
		if c := code.Code(n); c != code.Code_UNAVAILABLE && c != code.Code_ABORTED && c != code.Code_RESOURCE_EXHAUSTED {
			tests[c.String()] = failureTest{failed(t, c, retryInfo(0)), never}
		}
	}
	checkFailures(t, tests)
}

// The wait is the longest that the server asks for, in whichever way, and the backoff.
func TestWhatTheServerAsksFor(t *testing.T) {
	longest := failed(t, code.Code_UNAVAILABLE, retryInfo(4*time.Second))
	longest.RetryAfter, longest.Pushback = []string{"3"}, []string{"5000"}
	inProgress := failed(t, code.Code_ABORTED, reason(idempotency.ReasonKeyInProgress))
	inProgress.Pushback = []string{"-1"}
	checkFailures(t, map[string]failureTest{ // the clock begins at 2000-01-01 00:00:00 UTC
		"RetryInfo, negative":                   {failed(t, code.Code_UNAVAILABLE, retryInfo(-time.Hour)), 0},
		"retry-after in seconds":                {retryAfter("7"), 7 * time.Second},
		"retry-after as a date":                 {retryAfter("Sat, 01 Jan 2000 00:00:09 GMT"), 9 * time.Second},
		"retry-after as an old date":            {retryAfter("Saturday, 01-Jan-00 00:00:08 GMT"), 8 * time.Second},
		"retry-after as C's date":               {retryAfter("Sat Jan  1 00:00:06 2000"), 6 * time.Second},
		"retry-after in the past":               {retryAfter("Fri, 31 Dec 1999 23:59:00 GMT"), 0},
		"retry-after, malformed":                {retryAfter("soon", "-5", "1.5", ""), 0},
		"retry-after, beyond numbers":           {retryAfter("99999999999999999999"), never},
		"pushback":                              {pushback("250"), 250 * time.Millisecond},
		"pushback, negative":                    {pushback("-1"), never},
		"pushback, malformed":                   {pushback("soon"), never},
		"pushback, twice":                       {pushback("1", "1"), never},
		"pushback, negative, while in progress": {inProgress, never},
		"the longest of all":                    {longest, 5 * time.Second},
	})
}

func checkFailures(t *testing.T, tests map[string]failureTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fails(1, &test.failure)
				do(t.Context(), t, retrier(t), s)
				switch {
				case test.asked == never && len(s.keys) != 1:
					t.Errorf("sent %d times, want once", len(s.keys))
				case test.asked != never && len(s.keys) != 2:
					t.Errorf("sent %d times, want twice", len(s.keys))
				case test.asked != never:
					mustBeBetween(t, s.waits()[0], test.asked+client.DefaultInitialBackoff/2, test.asked+client.DefaultInitialBackoff*3/2)
				}
			})
		})
	}
}

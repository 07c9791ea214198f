package client

import (
	"errors"
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// Failure is what a [Retrier] looks at of an attempt's error.
type Failure struct {
	// Code is the error's code. Of a connection that broke before the answer was whole (see [Broken]) an adapter says
	// Unavailable, whatever its transport calls it.
	Code code.Code
	// Details are the error's details.
	Details []*anypb.Any
	// RetryAfter are the values of the metadata "retry-after": seconds, or an HTTP date. What is neither does not count.
	RetryAfter []string
	// Pushback are the values of the metadata "grpc-retry-pushback-ms": milliseconds. One that is negative or no number,
	// and more than one, say not to retry.
	Pushback []string
}

// forever is a wait that no limit allows.
const forever = time.Duration(math.MaxInt64)

// asked reports whether the call may be sent again, and how long the server wants the client to wait before. Of the
// details, one that does not parse says nothing.
func (f *Failure) asked(now time.Time) (time.Duration, bool) {
	e := &idempotency.Error{Details: f.Details}
	delay, hasDelay := idempotency.RetryDelay(e)
	switch f.Code {
	case code.Code_UNAVAILABLE:
	case code.Code_ABORTED:
		if reason := idempotency.ReasonOf(e); reason != idempotency.ReasonKeyInProgress && reason != idempotency.ReasonTxConflict {
			return 0, false
		}
	case code.Code_RESOURCE_EXHAUSTED:
		if !hasDelay {
			return 0, false
		}
	default:
		return 0, false
	}
	pushback, ok := f.pushback()
	if !ok {
		return 0, false
	}
	return max(0, pushback, f.retryAfter(now), delay), true
}

// pushback is what the server says in gRPC's own way, and false where that is not to retry.
func (f *Failure) pushback() (time.Duration, bool) {
	if len(f.Pushback) == 0 {
		return 0, true
	}
	ms, err := strconv.ParseInt(f.Pushback[0], 10, 32)
	if err != nil || ms < 0 || len(f.Pushback) > 1 {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// retryAfter is the longest wait that retry-after asks for.
func (f *Failure) retryAfter(now time.Time) (longest time.Duration) {
	for _, value := range f.RetryAfter {
		longest = max(longest, parseRetryAfter(value, now))
	}
	return longest
}

// parseRetryAfter reads one value of retry-after (RFC 9110, section 10.2.3), zero where it is none.
func parseRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 32)
	switch {
	case err == nil:
		return time.Duration(seconds) * time.Second
	case errors.Is(err, strconv.ErrRange):
		return forever
	}
	for _, layout := range []string{imfFixdate, time.RFC850, time.ANSIC} {
		if at, err := time.Parse(layout, value); err == nil {
			return at.Sub(now)
		}
	}
	return 0
}

// imfFixdate is the form of an HTTP date that is still written; the other two are only read (RFC 9110, section 5.6.7).
const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"

package client_test

import (
	"math"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// Options that cannot hold are errors of New.
func TestNewFails(t *testing.T) {
	for name, opt := range map[string]client.Option{
		"no attempts":             client.WithMaxAttempts(0),
		"negative attempts":       client.WithMaxAttempts(-1),
		"no time":                 client.WithMaxElapsed(0),
		"negative time":           client.WithMaxElapsed(-time.Second),
		"no backoff":              client.WithBackoff(0, time.Second),
		"a backoff that shrinks":  client.WithBackoff(2*time.Second, time.Second),
		"a backoff without end":   client.WithBackoff(time.Second, math.MaxInt64),
		"no key maker":            client.WithKeyMaker(nil),
		"no procedures":           client.WithProcedures(nil),
		"no header":               client.WithHeader(""),
		"a header with a blank":   client.WithHeader("idempotency key"),
		"a header of bytes":       client.WithHeader("key-bin"),
		"a header of gRPC's":      client.WithHeader("Grpc-Key"),
		"a header of Connect's":   client.WithHeader("connect-key"),
		"a header of line breaks": client.WithHeader("key\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := client.New(opt); err == nil || r != nil {
				t.Errorf("made %v, %v; want an error", r, err)
			}
		})
	}
}

// The header is the guard's own by default, and in lower case.
func TestHeader(t *testing.T) {
	if got := retrier(t).Header(); got != idempotency.DefaultHeader {
		t.Errorf("by default %q", got)
	}
	if got := retrier(t, client.WithHeader("X-Request-Key")).Header(); got != "x-request-key" {
		t.Errorf("set to %q", got)
	}
}

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

const procedure = "/charges.v1.ChargeService/CreateCharge"

func retrier(t *testing.T, opts ...client.Option) *client.Retrier {
	t.Helper()
	r, err := client.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// server is what attempts meet: it fails with what stands in failures, one after the other, and then succeeds.
type server struct {
	failures []*client.Failure
	keys     []string    // of the attempts
	times    []time.Time // of the attempts
}

func (s *server) send(_ context.Context, key string) *client.Failure {
	s.keys, s.times = append(s.keys, key), append(s.times, time.Now())
	if n := len(s.keys); n <= len(s.failures) {
		return s.failures[n-1]
	}
	return nil
}

// waits are the times between attempts.
func (s *server) waits() (waits []time.Duration) {
	for i := 1; i < len(s.times); i++ {
		waits = append(waits, s.times[i].Sub(s.times[i-1]))
	}
	return waits
}

// fails makes a server that fails n times alike.
func fails(n int, f *client.Failure) *server {
	s := new(server)
	for range n {
		s.failures = append(s.failures, f)
	}
	return s
}

func unavailable() *client.Failure { return &client.Failure{Code: code.Code_UNAVAILABLE} }

// do makes a call that has to be sent.
func do(ctx context.Context, t *testing.T, r *client.Retrier, s *server) {
	t.Helper()
	if err := r.Do(ctx, client.Call{Procedure: procedure}, s.send); err != nil {
		t.Fatal(err)
	}
}

// mustNotSend makes a call that has to fail before it is sent.
func mustNotSend(ctx context.Context, t *testing.T, r *client.Retrier, c client.Call, want error, wantCode code.Code) {
	t.Helper()
	s := new(server)
	err := r.Do(ctx, c, s.send)
	notSent, ok := errors.AsType[*client.NotSentError](err)
	if !ok || !errors.Is(err, want) || notSent.Code != wantCode {
		t.Errorf("failed with %v, want %v and %v", err, want, wantCode)
	}
	if len(s.keys) > 0 {
		t.Error("the call was sent")
	}
}

func details(t *testing.T, messages ...proto.Message) (all []*anypb.Any) {
	t.Helper()
	for _, m := range messages {
		d, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func reason(reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Domain: idempotency.Domain, Reason: reason}
}

func retryInfo(delay time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}
}

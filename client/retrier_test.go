package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// All attempts of a call carry one key, and another call another one.
func TestAttemptsShareTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := retrier(t)
		first, second := fails(4, unavailable()), new(server)
		do(t.Context(), t, r, first)
		do(t.Context(), t, r, second)
		if len(first.keys) != 5 || len(slices.Compact(slices.Clone(first.keys))) != 1 {
			t.Errorf("sent with %q, want one key five times", first.keys)
		}
		if len(second.keys) != 1 || second.keys[0] == first.keys[0] {
			t.Errorf("sent with %q after %q, want another key", second.keys, first.keys[0])
		}
	})
}

func mustBeBetween(t *testing.T, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most+time.Nanosecond { // the backoff rounds up
		t.Errorf("waited %v, want %v to %v", d, least, most)
	}
}

// The waits double up to the longest, each with jitter.
func TestBackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fails(5, unavailable())
		do(t.Context(), t, retrier(t, client.WithMaxAttempts(6), client.WithBackoff(time.Second, 3*time.Second)), s)
		means := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second}
		for i, wait := range s.waits() {
			mustBeBetween(t, wait, means[i]/2, means[i]*3/2)
		}
		if len(s.waits()) != len(means) {
			t.Errorf("waited %v, want %d times", s.waits(), len(means))
		}
	})
}

// Two clients that are refused at the same time do not come back at the same time.
func TestBackoffIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[time.Duration]bool)
		for range 20 {
			s := fails(1, new(retryAfter("1")))
			do(t.Context(), t, retrier(t), s)
			seen[s.waits()[0]] = true
		}
		if len(seen) < 2 {
			t.Errorf("20 waits were all %v", seen)
		}
	})
}

// Retries end with the number of attempts, with the time, and before the caller's deadline.
func TestRetriesAreBounded(t *testing.T) {
	tests := map[string]struct {
		opts     []client.Option
		failure  client.Failure
		deadline time.Duration // none where zero
		attempts int
		most     time.Duration // that the call may take
	}{
		"by default":      {failure: *unavailable(), attempts: client.DefaultMaxAttempts, most: client.DefaultMaxElapsed},
		"by number":       {opts: []client.Option{client.WithMaxAttempts(3)}, failure: *unavailable(), attempts: 3, most: 900 * time.Millisecond},
		"without retries": {opts: []client.Option{client.WithoutRetries()}, failure: *unavailable(), attempts: 1},
		"by time": {
			opts: []client.Option{client.WithMaxElapsed(2200 * time.Millisecond)}, failure: retryAfter("1"),
			attempts: 2, most: 1300*time.Millisecond + time.Nanosecond,
		},
		"by time, asked for more":   {failure: retryAfter("30"), attempts: 1},
		"by the deadline":           {failure: retryAfter("1"), deadline: 2200 * time.Millisecond, attempts: 2, most: 1300*time.Millisecond + time.Nanosecond},
		"by the deadline, at once":  {failure: retryAfter("5"), deadline: 5 * time.Second, attempts: 1},
		"by the deadline, the wait": {failure: *unavailable(), deadline: 50 * time.Millisecond, attempts: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				begin := time.Now()
				s := fails(100, &test.failure)
				do(ctx, t, retrier(t, test.opts...), s)
				if took := time.Since(begin); len(s.keys) != test.attempts || took > test.most {
					t.Errorf("sent %d times in %v, want %d in at most %v", len(s.keys), took, test.attempts, test.most)
				}
				if ctx.Err() != nil {
					t.Error("the deadline has passed")
				}
			})
		})
	}
}

// A call that is cancelled while it waits returns at once.
func TestCancelledWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(3*time.Second, cancel)
		s := fails(1, new(retryAfter("10")))
		do(ctx, t, retrier(t), s)
		if took := time.Since(begin); took != 3*time.Second || len(s.keys) != 1 {
			t.Errorf("returned after %v, sent %d times; want 3s, once", took, len(s.keys))
		}
	})
}

// A call whose context ends during an attempt is not sent again.
func TestCancelledWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sent := 0
		err := retrier(t).Do(ctx, client.Call{Procedure: procedure}, func(context.Context, string) *client.Failure {
			sent++
			cancel()
			return unavailable()
		})
		if err != nil || sent != 1 {
			t.Errorf("sent %d times, %v; want once", sent, err)
		}
	})
}

// A call without a key is sent once.
func TestWithoutAKeyNothingIsSentAgain(t *testing.T) {
	noSideEffects := client.Call{Procedure: procedure, NoSideEffects: true}
	tests := map[string]struct {
		ctx  context.Context
		call client.Call
		opts []client.Option
	}{
		"no side effects":     {ctx: t.Context(), call: noSideEffects},
		"turned off":          {ctx: client.WithoutKey(t.Context()), call: client.Call{Procedure: procedure}},
		"turned off, own key": {ctx: client.WithoutKey(t.Context()), call: client.Call{Procedure: procedure, Keys: []string{"own"}}},
		"another procedure": {
			ctx: t.Context(), call: client.Call{Procedure: "/other"},
			opts: []client.Option{client.WithProcedures(func(p string) bool { return p == procedure })},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := fails(1, unavailable())
			if err := retrier(t, test.opts...).Do(test.ctx, test.call, s.send); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.keys, []string{""}) {
				t.Errorf("sent with %q, want once, without a key", s.keys)
			}
		})
	}
}

// One Retrier serves many calls at a time.
func TestManyCallsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := retrier(t)
		var mu sync.Mutex
		attempts := make(map[string]int)
		var calls sync.WaitGroup
		for range 64 {
			calls.Go(func() {
				s := fails(2, unavailable())
				if err := r.Do(t.Context(), client.Call{Procedure: procedure}, s.send); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, key := range s.keys {
					attempts[key]++
				}
			})
		}
		calls.Wait()
		for key, n := range attempts {
			if n != 3 {
				t.Errorf("%s was sent %d times, want three times", key, n)
			}
		}
		if len(attempts) != 64 {
			t.Errorf("%d keys, want 64", len(attempts))
		}
	})
}

// What makes keys may be the caller's own; where it fails the call is not sent.
func TestKeyMaker(t *testing.T) {
	made := func() (string, error) { return "made", nil }
	s := new(server)
	do(t.Context(), t, retrier(t, client.WithKeyMaker(made)), s)
	if !slices.Equal(s.keys, []string{"made"}) {
		t.Errorf("sent with %q, want the key that was made", s.keys)
	}
	broken := errors.New("out of numbers")
	failing := retrier(t, client.WithKeyMaker(func() (string, error) { return "", broken }))
	mustNotSend(t.Context(), t, failing, client.Call{Procedure: procedure}, client.ErrNoKey, code.Code_INTERNAL)
	mustNotSend(t.Context(), t, failing, client.Call{Procedure: procedure}, broken, code.Code_INTERNAL)
	invalid := retrier(t, client.WithKeyMaker(func() (string, error) { return "", nil }))
	mustNotSend(t.Context(), t, invalid, client.Call{Procedure: procedure}, client.ErrKeyInvalid, code.Code_INTERNAL)
}

package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// New keys are UUIDs of version 7, valid as they are, in order.
func TestNewKey(t *testing.T) {
	last := ""
	for range 1000 {
		key := client.NewKey()
		id, err := uuid.Parse(key)
		if err != nil || id.Version() != 7 {
			t.Fatalf("%q is version %d, %v", key, id.Version(), err)
		}
		if parsed, err := idempotency.ParseKey(key); err != nil || parsed != key {
			t.Fatalf("%q is the key %q, %v", key, parsed, err)
		}
		if key <= last {
			t.Fatalf("%q came after %q", key, last)
		}
		last = key
	}
}

// A key from the context goes with all attempts of one call. The next call with the context is not sent.
func TestKeyFromTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := retrier(t)
		ctx, cancel := context.WithCancel(client.WithKey(t.Context(), "order-1"))
		defer cancel()
		s := fails(2, unavailable())
		do(ctx, t, r, s)
		if !slices.Equal(s.keys, []string{"order-1", "order-1", "order-1"}) {
			t.Errorf("sent with %q, want the context's key three times", s.keys)
		}
		mustNotSend(ctx, t, r, client.Call{Procedure: procedure}, client.ErrKeyUsed, code.Code_INVALID_ARGUMENT)
		mustNotSend(ctx, t, r, client.Call{Procedure: procedure, Keys: []string{"own"}}, client.ErrKeyUsed, code.Code_INVALID_ARGUMENT)

		again := new(server)
		do(client.WithKey(ctx, "order-1"), t, r, again)
		if !slices.Equal(again.keys, []string{"order-1"}) {
			t.Errorf("sent with %q, want the key that was brought again", again.keys)
		}
		own := new(server)
		do(client.WithNewKeys(ctx), t, r, own)
		if len(own.keys) != 1 || own.keys[0] == "" || own.keys[0] == "order-1" {
			t.Errorf("sent with %q, want a new key", own.keys)
		}
	})
}

// Of many calls that share a context with a key, one is sent.
func TestOneCallUsesTheContextsKey(t *testing.T) {
	r := retrier(t)
	ctx := client.WithKey(t.Context(), "order-1")
	var sent, refused atomic.Int32
	var calls sync.WaitGroup
	for range 64 {
		calls.Go(func() {
			err := r.Do(ctx, client.Call{Procedure: procedure}, func(context.Context, string) *client.Failure {
				sent.Add(1)
				return nil
			})
			if errors.Is(err, client.ErrKeyUsed) {
				refused.Add(1)
			}
		})
	}
	calls.Wait()
	if sent.Load() != 1 || refused.Load() != 63 {
		t.Errorf("%d sent and %d refused, want 1 and 63", sent.Load(), refused.Load())
	}
}

// What runs within a call does not send the call's key, even where the call did not use it.
func TestKeyIsHiddenWithinTheCall(t *testing.T) {
	tests := map[string]struct {
		ctx  context.Context
		call client.Call
	}{
		"a key":                    {client.WithKey(t.Context(), "order-1"), client.Call{Procedure: procedure}},
		"turned off":               {client.WithoutKey(t.Context()), client.Call{Procedure: procedure}},
		"a key, a call that reads": {client.WithKey(t.Context(), "order-1"), client.Call{Procedure: procedure, NoSideEffects: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, within := retrier(t), new(server)
			err := r.Do(test.ctx, test.call, func(ctx context.Context, _ string) *client.Failure {
				do(ctx, t, r, within)
				do(ctx, t, r, within)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(within.keys) != 2 || slices.Contains(within.keys, "") || slices.Contains(within.keys, "order-1") || within.keys[0] == within.keys[1] {
				t.Errorf("sent with %q, want two new keys", within.keys)
			}
		})
	}
}

// A call that reads leaves the context's key to the call that it is for.
func TestReadingDoesNotUseTheKey(t *testing.T) {
	r := retrier(t)
	ctx := client.WithKey(t.Context(), "order-1")
	read, write := new(server), new(server)
	if err := r.Do(ctx, client.Call{Procedure: procedure, NoSideEffects: true}, read.send); err != nil {
		t.Fatal(err)
	}
	do(ctx, t, r, write)
	if !slices.Equal(read.keys, []string{""}) || !slices.Equal(write.keys, []string{"order-1"}) {
		t.Errorf("sent with %q and %q, want no key, then the context's", read.keys, write.keys)
	}
}

// Turning keys off is for one call too.
func TestTurnedOffOnce(t *testing.T) {
	r := retrier(t)
	ctx := client.WithoutKey(client.WithKey(t.Context(), "order-1"))
	s := new(server)
	do(ctx, t, r, s)
	if !slices.Equal(s.keys, []string{""}) {
		t.Errorf("sent with %q, want no key", s.keys)
	}
	mustNotSend(ctx, t, r, client.Call{Procedure: procedure}, client.ErrKeyUsed, code.Code_INVALID_ARGUMENT)
}

// A key that stands in the metadata goes out as it is, and its call is retried.
func TestKeyInTheMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fails(1, unavailable())
		err := retrier(t, client.WithProcedures(func(string) bool { return false })).
			Do(t.Context(), client.Call{Procedure: procedure, Keys: []string{"own"}}, s.send)
		if err != nil || !slices.Equal(s.keys, []string{"", ""}) {
			t.Errorf("sent with %q, %v; want twice, as it is", s.keys, err)
		}
	})
}

// The context and the metadata may bring the same key, in either of its forms, and not two.
func TestKeysThatMeet(t *testing.T) {
	r := retrier(t)
	s := new(server)
	err := r.Do(client.WithKey(t.Context(), "order-1"), client.Call{Procedure: procedure, Keys: []string{`"order-1"`}}, s.send)
	if err != nil || !slices.Equal(s.keys, []string{""}) {
		t.Errorf("sent with %q, %v; want the metadata as it is", s.keys, err)
	}
	mustNotSend(client.WithKey(t.Context(), "order-1"), t, r, client.Call{Procedure: procedure, Keys: []string{"order-2"}},
		client.ErrKeyConflict, code.Code_INVALID_ARGUMENT)
}

// A key from the context that is none is not sent, nor silently replaced.
func TestInvalidKeyFromTheContext(t *testing.T) {
	for _, key := range []string{"", "order 1", "örder", `"open`} {
		mustNotSend(client.WithKey(t.Context(), key), t, retrier(t), client.Call{Procedure: procedure},
			client.ErrKeyInvalid, code.Code_INVALID_ARGUMENT)
	}
}

// A key that the caller brings is sent for procedures too that are given none.
func TestBroughtKeyOutranksTheProcedure(t *testing.T) {
	r := retrier(t, client.WithProcedures(func(string) bool { return false }))
	s := new(server)
	do(client.WithKey(t.Context(), "order-1"), t, r, s)
	if !slices.Equal(s.keys, []string{"order-1"}) {
		t.Errorf("sent with %q, want the context's key", s.keys)
	}
}

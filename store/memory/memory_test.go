package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Config{New: func(*testing.T) store.Store { return memory.New() }})
}

func newClaim(id store.ID, life, lease time.Duration) store.Claim {
	return store.Claim{ID: id, Token: store.NewToken(), RequestHash: "v1:hash", Procedure: "/test.v1.Service/Do", TTL: life, Lease: lease}
}

func record() store.Record {
	return store.Record{State: store.Completed, Code: code.Code_OK, Reply: []byte("a reply of the usual size, which is not long")}
}

func win(tb testing.TB, s *memory.Store, c store.Claim) store.Attempt {
	tb.Helper()
	found, attempt, err := s.Claim(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	if attempt == nil {
		tb.Fatalf("Claim did not win, it found %+v", found)
	}
	return attempt
}

func row(t *testing.T, s *memory.Store, id store.ID) store.Found {
	t.Helper()
	found, err := s.Look(t.Context(), []store.ID{id})
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

func TestCompleteAgainSucceedsAndChangesNothing(t *testing.T) {
	s := memory.New()
	c := newClaim(store.ID{Key: "key"}, time.Hour, time.Minute)
	a := win(t, s, c)
	for _, reply := range []string{"first", "second"} {
		if err := a.Complete(t.Context(), store.Record{State: store.Completed, Reply: []byte(reply)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Release(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("Release returned %v, want store.ErrFenced", err)
	}
	if found := row(t, s, c.ID); found.State != store.Completed || string(found.Record.Reply) != "first" {
		t.Fatalf("the row is %+v, want the first reply", found)
	}
}

func TestSettlingHeedsNoContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := memory.New()
	if err := win(t, s, newClaim(store.ID{Key: "completed"}, time.Hour, time.Minute)).Complete(ended, record(), false); err != nil {
		t.Errorf("Complete: %v", err)
	}
	if err := win(t, s, newClaim(store.ID{Key: "released"}, time.Hour, time.Minute)).Release(ended); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestCompleteRefusesOtherStates(t *testing.T) {
	s := memory.New()
	c := newClaim(store.ID{Key: "key"}, time.Hour, time.Minute)
	a := win(t, s, c)
	for _, state := range []store.State{store.Absent, store.InProgress} {
		if err := a.Complete(t.Context(), store.Record{State: state}, false); err == nil {
			t.Errorf("Complete kept a record that is %v", state)
		}
	}
	if found := row(t, s, c.ID); found.State != store.InProgress {
		t.Fatalf("the row is %+v, want it in progress", found)
	}
}

// methods calls each method that heeds its context, with arguments as long as size says.
func methods(s *memory.Store, size int) map[string]func(context.Context) error {
	c := newClaim(store.ID{Key: "key"}, time.Hour, time.Minute)
	return map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error {
			_, _, err := s.Claim(ctx, c)
			return err
		},
		"TakeOver": func(ctx context.Context) error {
			_, _, err := s.TakeOver(ctx, c, c.Token)
			return err
		},
		"Look": func(ctx context.Context) error {
			_, err := s.Look(ctx, make([]store.ID, size))
			return err
		},
		"Forget": func(ctx context.Context) error {
			_, err := s.Forget(ctx, c.ID)
			return err
		},
		"Sweep": func(ctx context.Context) error {
			_, _, err := s.Sweep(ctx, store.Cursor{}, size)
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, make([]store.Held, size), time.Minute)
			return err
		},
	}
}

func TestContextThatHasEnded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range methods(memory.New(), 1) {
		if err := call(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s returned %v, want context.Canceled", name, err)
		}
	}
}

func TestLimits(t *testing.T) {
	s := memory.New()
	for _, test := range []struct {
		method  string
		size    int
		allowed bool
	}{
		{"Look", 0, true},
		{"Look", store.MaxLook, true},
		{"Look", store.MaxLook + 1, false},
		{"Renew", 0, true},
		{"Renew", store.MaxLook, true},
		{"Renew", store.MaxLook + 1, false},
		{"Sweep", -1, false},
		{"Sweep", 0, false},
		{"Sweep", 1, true},
		{"Sweep", store.MaxSweep, true},
		{"Sweep", store.MaxSweep + 1, false},
	} {
		if err := methods(s, test.size)[test.method](t.Context()); (err == nil) != test.allowed {
			t.Errorf("%s of %d returned %v, want it allowed: %v", test.method, test.size, err, test.allowed)
		}
	}
}

// TestAllocations holds the paths of a call to what they need: a row and its attempt, and a reply of one's own.
func TestAllocations(t *testing.T) {
	s := memory.New()
	c := newClaim(store.ID{Scope: "tenant", Key: "key"}, time.Hour, time.Minute)
	ids := []store.ID{c.ID}
	r := record()
	first := testing.AllocsPerRun(100, func() {
		if err := win(t, s, c).Complete(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Forget(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	})
	if first > 3 {
		t.Errorf("a first call makes %v allocations, want at most 3", first)
	}
	if err := win(t, s, c).Complete(t.Context(), r, false); err != nil {
		t.Fatal(err)
	}
	replay := testing.AllocsPerRun(100, func() {
		if _, a, err := s.Claim(t.Context(), c); a != nil || err != nil {
			t.Fatal(a, err)
		}
	})
	if replay > 1 {
		t.Errorf("a replay makes %v allocations, want at most 1", replay)
	}
	look := testing.AllocsPerRun(100, func() {
		if _, err := s.Look(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
	})
	if look > 2 {
		t.Errorf("a look makes %v allocations, want at most 2", look)
	}
}

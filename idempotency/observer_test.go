package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// observed is what a test compares of an event.
type observed struct {
	outcome idempotency.Outcome
	attempt int
	failed  bool
}

func TestEveryCallEndsWithOneOutcome(t *testing.T) {
	t.Parallel()
	const (
		runs    = 100 * time.Millisecond // each handler
		noKey   = ""
		secret  = secretKey
		another = 2
	)
	replies := func(reply idempotency.Reply) func(context.Context) idempotency.Reply {
		return func(context.Context) idempotency.Reply {
			pass(runs)
			return reply
		}
	}
	for name, c := range map[string]struct {
		prepare func(*testing.T, *rig)
		call    idempotency.Call
		run     func(context.Context) idempotency.Reply // nil: it does not run
		want    []observed
		keyless bool
	}{
		"executed": {
			call: charge(secret, 1), run: replies(created("ch_1")),
			want: []observed{{idempotency.Executed, 1, false}},
		},
		"an error executed": {
			call: charge(secret, 1), run: replies(failed(code.Code_NOT_FOUND)),
			want: []observed{{idempotency.Executed, 1, false}},
		},
		"released": {
			call: charge(secret, 1), run: replies(failed(code.Code_UNAVAILABLE)),
			want: []observed{{idempotency.Released, 1, false}},
		},
		"not kept": {
			call: charge(secret, 1), run: replies(created("\xff")),
			want: []observed{{idempotency.NotKept, 1, true}},
		},
		"not kept, the retry": {
			prepare: func(t *testing.T, r *rig) { t.Helper(); r.mustRun(t, charge(secret, 1), created("\xff")) },
			call:    charge(secret, 1),
			want:    []observed{{idempotency.NotKept, 0, true}},
		},
		"replayed": {
			prepare: func(t *testing.T, r *rig) { t.Helper(); r.mustRun(t, charge(secret, 1), created("ch_1")) },
			call:    charge(secret, 1),
			want:    []observed{{idempotency.Replayed, 0, false}},
		},
		"reused": {
			prepare: func(t *testing.T, r *rig) { t.Helper(); r.mustRun(t, charge(secret, 1), created("ch_1")) },
			call:    charge(secret, another),
			want:    []observed{{idempotency.Reused, 0, true}},
		},
		"in progress": {
			prepare: hangUntilTheEnd,
			call:    charge(secret, 1),
			want:    []observed{{idempotency.InProgress, 0, true}},
		},
		"taken over": {
			prepare: func(t *testing.T, r *rig) { t.Helper(); hangUntilTheEnd(t, r); pass(lease) },
			call:    charge(secret, 1), run: replies(created("ch_2")),
			want: []observed{{idempotency.TakenOver, 2, false}, {idempotency.Executed, 2, false}},
		},
		"taken over and released": {
			prepare: func(t *testing.T, r *rig) { t.Helper(); hangUntilTheEnd(t, r); pass(lease) },
			call:    charge(secret, 1), run: replies(failed(code.Code_UNAVAILABLE)),
			want: []observed{{idempotency.TakenOver, 2, false}, {idempotency.Released, 2, false}},
		},
		"invalid": {
			call: charge(secret+"\x00", 1), keyless: true,
			want: []observed{{idempotency.Invalid, 0, true}},
		},
		"failed": {
			prepare: func(_ *testing.T, r *rig) { r.store.onClaim = func(context.Context) error { return errDown() } },
			call:    charge(secret, 1),
			want:    []observed{{idempotency.Failed, 0, true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, leased(), shortLived()...)
				if c.prepare != nil {
					c.prepare(t, r)
				}
				before, wantTook := len(r.told()), runs
				if c.run == nil {
					c.run, wantTook = neverRuns(t), 0
				}
				res := r.do(t.Context(), c.call, c.run)
				told := r.told()[before:]
				if len(told) != len(c.want) {
					t.Fatalf("observed %+v, want %v", told, c.want)
				}
				for i, e := range told {
					if got := (observed{e.Outcome, e.Attempt, e.Err != nil}); got != c.want[i] {
						t.Errorf("observed %v, want %v", got, c.want[i])
					}
					requireEvent(t, e, c.keyless)
				}
				last := told[len(told)-1]
				if last.Duration != wantTook {
					t.Errorf("the call is said to have taken %v, want %v", last.Duration, wantTook)
				}
				if res.err != nil && !errors.Is(last.Err, res.err) {
					t.Errorf("observed the error %v, the caller %v", last.Err, res.err)
				}
			})
		})
	}
}

// hangUntilTheEnd leaves a first call running while t does.
func hangUntilTheEnd(t *testing.T, r *rig) {
	t.Helper()
	h := r.hang(t.Context(), t, charge(secretKey, 1))
	t.Cleanup(func() { h.returns(created("late")) })
}

func requireEvent(t *testing.T, e idempotency.Event, keyless bool) {
	t.Helper()
	if e.Procedure != createCharge {
		t.Errorf("the procedure is %q", e.Procedure)
	}
	if keyless != (e.KeyDigest == "") {
		t.Errorf("the key's digest is %q", e.KeyDigest)
	}
	if text := fmt.Sprintf("%+v %v", e, e.Err); strings.Contains(text, secretKey) {
		t.Errorf("the event has the key: %s", text)
	}
}

func TestTheDigestIsOfScopeAndKey(t *testing.T) {
	t.Parallel()
	const want = "8dffd3625e47" // of "tenant-1", a zero byte, "8e03978e": computed by other means
	r := newRig(t, leased(), idempotency.WithScope(func(context.Context, idempotency.Call) (string, error) { return "tenant-1", nil }))
	r.mustRun(t, charge("8e03978e", 1), created("ch_1"))
	r.mustReplay(t, charge(`"8e03978e"`, 1), created("ch_1").Message)
	for _, e := range r.told() {
		if e.KeyDigest != want {
			t.Errorf("%v: the key's digest is %q, want %q", e.Outcome, e.KeyDigest, want)
		}
	}
}

func TestObserversAreCalledInOrderBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	type ctxKey struct{}
	var order []string
	observer := func(name string) idempotency.Option {
		return idempotency.WithObserver(func(ctx context.Context, e idempotency.Event) {
			if ctx.Value(ctxKey{}) == nil {
				t.Errorf("%s is told %v without the call's context", name, e.Outcome)
			}
			order = append(order, name)
		})
	}
	r := newRig(t, leased(), observer("first"), observer("second"))
	res := r.do(context.WithValue(t.Context(), ctxKey{}, 1), charge("k", 1), (&handler{reply: created("ch_1")}).run)
	if res.err != nil {
		t.Fatal(res.err)
	}
	if got := strings.Join(order, ", "); got != "first, second" {
		t.Errorf("told %s; want the first, then the second, once each", got)
	}
}

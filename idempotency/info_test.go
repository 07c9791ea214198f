package idempotency_test

import (
	"context"
	"regexp"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestFromContext(t *testing.T) {
	t.Parallel()
	if info, ok := idempotency.FromContext(t.Context()); ok || info != (idempotency.Info{}) {
		t.Errorf("outside a call: %v, %v; want nothing", info, ok)
	}
	for mode, newStore := range eachMode() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, newStore(), idempotency.WithScope(
				func(context.Context, idempotency.Call) (string, error) { return "tenant\x00", nil }))
			run := func(ctx context.Context) idempotency.Reply {
				info, ok := idempotency.FromContext(ctx)
				if want := (idempotency.Info{Scope: "tenant\x00", Key: "k", Attempt: 1}); !ok || info != want {
					t.Errorf("within a call: %v, %v; want %v", info, ok, want)
				}
				if ctx.Value(attemptKey{}) == nil {
					t.Error("the handler's context is not the attempt's")
				}
				return failed(code.Code_UNAVAILABLE)
			}
			for range 2 { // Attempt begins at 1 again after a release.
				if res := r.do(t.Context(), charge(`"k"`, 1), run); res.err != nil {
					t.Fatal(res.err)
				}
			}
		})
	}
}

// Other systems remember the key: a change of it is a second charge.
func TestDerivedKeysStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	const want = "60d8d61c-bab2-82d6-8073-c51e15087251" // computed by other means
	for attempt := range 3 {
		info := idempotency.Info{Scope: "tenant-1", Key: "8e03978e", Attempt: attempt}
		if got := info.DerivedKey("capture"); got != want {
			t.Errorf("attempt %d: the derived key is %q, want %q", attempt, got, want)
		}
	}
}

func TestDerivedKeysDifferByScopeKeyAndStep(t *testing.T) {
	t.Parallel()
	// RFC 9562: version 8, variant 10.
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string][3]string)
	parts := []string{"", "a", "b", "ab", "ba", "a\x00", "\x00a", "\xff"}
	for _, scope := range parts {
		for _, key := range parts {
			for _, step := range parts {
				id := [3]string{scope, key, step}
				got := idempotency.Info{Scope: scope, Key: key}.DerivedKey(step)
				if !uuid.MatchString(got) {
					t.Fatalf("%q: %q is no UUID", id, got)
				}
				if other, taken := seen[got]; taken {
					t.Fatalf("%q and %q have one derived key", id, other)
				}
				seen[got] = id
			}
		}
	}
}

func TestKeepWritesReachesTheStore(t *testing.T) {
	t.Parallel()
	for mode, newStore := range eachMode() {
		for name, keepWrites := range map[string]bool{"asked for": true, "not asked for": false} {
			for _, reply := range []idempotency.Reply{failed(code.Code_FAILED_PRECONDITION), created("ch_1")} {
				t.Run(mode+"/"+name+"/"+reply.Code().String(), func(t *testing.T) {
					t.Parallel()
					r := newRig(t, newStore())
					res := r.do(t.Context(), charge("k", 1), func(ctx context.Context) idempotency.Reply {
						if keepWrites {
							idempotency.KeepWrites(ctx)
						}
						return reply
					})
					if res.err != nil {
						t.Fatal(res.err)
					}
					done := r.store.completed()
					if len(done) != 1 || done[0].keepWrites != keepWrites {
						t.Errorf("completed %+v, want keepWrites %v", done, keepWrites)
					}
				})
			}
		}
	}
}

func TestKeepWritesWithoutAKeyDoesNothing(t *testing.T) {
	t.Parallel()
	idempotency.KeepWrites(t.Context())
}

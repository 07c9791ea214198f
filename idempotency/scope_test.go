package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

type scopeKey struct{}

// scopedRig has the scope that the caller's context names.
func scopedRig(t *testing.T) *rig {
	t.Helper()
	return newRig(t, leased(), idempotency.WithScope(func(ctx context.Context, _ idempotency.Call) (string, error) {
		scope, ok := ctx.Value(scopeKey{}).(string)
		if !ok {
			return "", errors.New("no scope in the context")
		}
		return scope, nil
	}))
}

func within(ctx context.Context, scope string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope)
}

func TestHostileScopesNeitherMeetNorReachTheStore(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<10)
	scopes := []string{
		"", " ", "tenant", "Tenant", "tenant\x00", "\x00tenant", "tenant\xff", "tenant\xfe", "\xff", "\xed\xa0\x80",
		"\ufffd", "tenant\ufffd", "té", strings.Repeat("é", 127), strings.Repeat("é", 128),
		strings.Repeat("y", 255), strings.Repeat("y", 256), long, long + "x", long + "\x00",
		"sha256:", "sha256:0", "SHA256:", "'; drop table idempotency_keys; --", "a/b", "a\nb",
	}
	r := scopedRig(t)
	stored := make(map[string]string)
	claim := func(scope string) {
		reply := created(fmt.Sprint(len(stored)))
		info := idempotency.Info{}
		res := r.do(within(t.Context(), scope), charge("k", 1), func(ctx context.Context) idempotency.Reply {
			info, _ = idempotency.FromContext(ctx)
			return reply
		})
		if res.err != nil || res.replayed {
			t.Fatalf("scope %.20q: replayed = %v, %v; want a run", scope, res.replayed, res.err)
		}
		if info.Scope != scope {
			t.Errorf("the handler is told the scope %.20q, want %.20q", info.Scope, scope)
		}
		asked := r.store.asked()
		got := asked[len(asked)-1].ID.Scope
		if len(got) > 255 || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("scope %.20q reaches the store as %q", scope, got)
		}
		if other, taken := stored[got]; taken {
			t.Errorf("scopes %.20q and %.20q meet as %q", scope, other, got)
		}
		stored[got] = scope
	}
	for _, scope := range scopes {
		claim(scope)
	}
	// Nobody who names the stored form of another's scope gets there.
	for form, scope := range stored {
		if form != scope {
			claim(form)
		}
	}
	for _, scope := range scopes {
		if res := r.do(within(t.Context(), scope), charge("k", 1), neverRuns(t)); res.err != nil || !res.replayed {
			t.Errorf("scope %.20q: replayed = %v, %v; want a replay", scope, res.replayed, res.err)
		}
		if freed, err := r.Forget(t.Context(), scope, "k"); err != nil || !freed {
			t.Errorf("scope %.20q: Forget = %v, %v", scope, freed, err)
		}
	}
}

func TestAPlainScopeIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	r := scopedRig(t)
	for _, scope := range []string{"", "tenant-1", "té", strings.Repeat("y", 255)} {
		res := r.do(within(t.Context(), scope), charge("k", 1), (&handler{reply: created("ch_1")}).run)
		if res.err != nil {
			t.Fatal(res.err)
		}
		asked := r.store.asked()
		if got := asked[len(asked)-1].ID.Scope; got != scope {
			t.Errorf("scope %q is stored as %q", scope, got)
		}
	}
}

func TestScopeAndKeyThatConcatenateAlikeDoNotMeet(t *testing.T) {
	t.Parallel()
	r := scopedRig(t)
	pairs := [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", "a"}, {"a\x00b", "c"}, {"a/b", "c"}, {"a", "b/c"}, {"a", "/b/c"}}
	digests := make(map[string]bool)
	for _, p := range pairs {
		res := r.do(within(t.Context(), p[0]), charge(p[1], 1), (&handler{reply: created("ch_1")}).run)
		if res.err != nil || res.replayed {
			t.Errorf("%q: replayed = %v, %v; want a run", p, res.replayed, res.err)
		}
		digests[r.last(t).KeyDigest] = true
	}
	if len(digests) != len(pairs) {
		t.Errorf("%d keys have %d digests", len(pairs), len(digests))
	}
}

func TestAScopeFunctionThatFails(t *testing.T) {
	t.Parallel()
	const inner = "tenants.internal:5432 refused the connection"
	own := &idempotency.Error{
		Code: code.Code_UNAUTHENTICATED, Message: "who are you?", Metadata: idempotency.Metadata{"www-authenticate": {"Bearer"}},
	}
	for name, c := range map[string]struct {
		err    error
		code   code.Code
		reason string
	}{
		"an error of ours":            {own, code.Code_UNAUTHENTICATED, ""},
		"an error of ours, wrapped":   {fmt.Errorf("%s: %w", inner, own), code.Code_UNAUTHENTICATED, ""},
		"any other":                   {errors.New(inner), code.Code_INTERNAL, idempotency.ReasonMisconfigured},
		"a context's, not the call's": {context.Canceled, code.Code_INTERNAL, idempotency.ReasonMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), idempotency.WithScope(
				func(context.Context, idempotency.Call) (string, error) { return "tenant", c.err }))
			e := r.refusal(t, charge("k", 1), c.code, c.reason)
			if c.reason == "" && e != own {
				t.Errorf("refused with %v, want the function's own %v", e, own)
			}
			if c.reason != "" && (strings.Contains(e.Message, c.err.Error()) || !errors.Is(e, c.err)) {
				t.Errorf("the client is told %q, with the cause %v; want the cause kept from the client", e.Message, e.Cause)
			}
			if scope, ok := errors.AsType[*idempotency.CallbackError](e); ok != (c.reason != "") || ok && !errors.Is(scope.Err, c.err) {
				t.Errorf("the cause is %v; want what the function returned for the adapter to see, unless it is ours", e.Cause)
			}
			if n := len(r.store.asked()); n != 0 {
				t.Errorf("the store was asked %d times", n)
			}
			if o := r.last(t); o.Outcome != idempotency.Failed || o.KeyDigest != "" {
				t.Errorf("observed %v of key %q, want failed, of no known key", o.Outcome, o.KeyDigest)
			}
		})
	}
}

func TestTheScopeFunctionIsGivenTheCall(t *testing.T) {
	t.Parallel()
	want := charge("k", 1)
	r := newRig(t, leased(), idempotency.WithScope(func(ctx context.Context, c idempotency.Call) (string, error) {
		if ctx != t.Context() || c.Procedure != want.Procedure || c.Request != want.Request || len(c.Keys) != 1 {
			t.Errorf("given %v with another context or call", c)
		}
		return "tenant", nil
	}))
	r.mustRun(t, want, created("ch_1"))
}

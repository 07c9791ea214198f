package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func idTests() []subtest {
	return []subtest{
		{"one key in two scopes is two", anyStore, idScopes},
		{"names that are one when joined are two", anyStore, idJoined},
		{"every visible ASCII character counts", anyStore, idASCII},
		{"case counts", anyStore, idCase},
		{"what looks like nothing counts", anyStore, idBlank},
		{"longest scope and key are kept whole", anyStore, idLongest},
		{"empty scope is a scope", anyStore, idEmptyScope},
	}
}

// apart fails t unless each of ids is a key of its own: absent until it is claimed, and found with its own record.
func apart(t *testing.T, r rig, ids ...store.ID) {
	t.Helper()
	claims := make([]store.Claim, len(ids))
	label := func(i int) string { return fmt.Sprintf("reply %d", i) }
	for i, id := range ids {
		claims[i] = longClaim(id)
		found, h := r.claim(t, r.store, claims[i])
		if h == nil {
			t.Fatalf("%+q was not claimed before, but Claim found %s", id, describe(found))
		}
		h.complete(t, record(label(i)))
	}
	for i, found := range r.look(t, r.store, ids...) {
		same(t, "Look", found, recordOf(claims[i], 1, record(label(i))))
	}
}

func idScopes(t *testing.T, r rig) {
	first := r.win(t, r.store, longClaim(store.ID{Scope: "tenant-1", Key: "key"}))
	second := r.win(t, r.store, longClaim(store.ID{Scope: "tenant-2", Key: "key"})) // while the first holds its own
	second.complete(t, record("second"))
	first.complete(t, record("first"))
	apart(t, r, store.ID{Scope: "a", Key: "key"}, store.ID{Scope: "b", Key: "key"}, store.ID{Scope: "key", Key: "a"})
}

func idJoined(t *testing.T, r rig) {
	ids := []store.ID{
		{Scope: "ab", Key: "c"}, {Scope: "a", Key: "bc"}, {Scope: "", Key: "abc"},
		{Scope: "1:a", Key: "b"}, {Scope: "1", Key: "a:b"}, // as a length in front would have it
	}
	for _, separator := range []string{":", "/", "|", ",", ".", "-", "_", "#", `\`, `"`, "'", "'',"} {
		ids = append(ids, store.ID{Scope: "x" + separator + "y", Key: "z"}, store.ID{Scope: "x", Key: "y" + separator + "z"})
	}
	apart(t, r, ids...)
	// Each pair again, now while the other half is held: what is locked is told apart, too.
	held := r.win(t, r.store, longClaim(store.ID{Scope: "mn", Key: "o"}))
	r.win(t, r.store, longClaim(store.ID{Scope: "m", Key: "no"})).complete(t, record("m"))
	held.complete(t, record("mn"))
}

func idASCII(t *testing.T, r rig) {
	var ids []store.ID
	var all strings.Builder
	for b := byte('!'); b <= '~'; b++ {
		all.WriteByte(b)
		ids = append(ids, store.ID{Scope: "tenant-1", Key: string(b)}, store.ID{Scope: "tenant-1", Key: "key" + string(b)})
	}
	apart(t, r, append(ids, store.ID{Scope: "tenant-1", Key: all.String()})...)
}

func idCase(t *testing.T, r rig) {
	apart(t, r,
		store.ID{Scope: "tenant", Key: "key"}, store.ID{Scope: "tenant", Key: "KEY"}, store.ID{Scope: "tenant", Key: "Key"},
		store.ID{Scope: "Tenant", Key: "key"}, store.ID{Scope: "é", Key: "key"}, store.ID{Scope: "É", Key: "key"},
		store.ID{Scope: "straße", Key: "key"}, store.ID{Scope: "strasse", Key: "key"},
	)
}

// idBlank has what a database pads, trims, normalizes, or passes over when it sorts.
func idBlank(t *testing.T, r rig) {
	var ids []store.ID
	for _, key := range []string{"key", "key-", "key_", "key.", "key~", "key!", "k-ey", "-key", "0key", "key0", "key%", "key*"} {
		ids = append(ids, store.ID{Scope: "tenant", Key: key})
	}
	for _, scope := range []string{
		"tenant ", " tenant", "tenant  ", "tenant\t", "tenant\n", "tenant\r\n", "ten ant", "tenant\x01", "tenant\x7f",
		"tenant\u00a0", "tenant\u200b", "tenant\u00ad", "\ufefftenant", "tenant\U000e0020",
		"caf\u00e9", "cafe\u0301", "\ufb01", "fi", // one letter each, in two normal forms
	} {
		ids = append(ids, store.ID{Scope: scope, Key: "key"})
	}
	apart(t, r, ids...)
}

func idLongest(t *testing.T, r rig) {
	long := strings.Repeat("0123456789", 26)[:254]
	wide := strings.Repeat("\U0001f511", 63) // 252 bytes
	var ids []store.ID
	for _, scope := range []string{long, long + "a", long + "b", wide, wide + "abc", wide + "abd"} {
		for _, key := range []string{long, long + "a", long + "b"} {
			ids = append(ids, store.ID{Scope: scope, Key: key})
		}
	}
	apart(t, r, ids...)
}

func idEmptyScope(t *testing.T, r rig) {
	apart(t, r, store.ID{Scope: "", Key: "key"}, store.ID{Scope: " ", Key: "key"}, store.ID{Scope: "key", Key: "key"})
}

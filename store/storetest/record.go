package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func recordTests() []subtest {
	return []subtest{
		{"reply is kept byte for byte", anyStore, recordBytes},
		{"large reply is kept byte for byte", anyStore, recordLarge},
		{"empty reply is kept", anyStore, recordEmpty},
		{"every code is kept", anyStore, recordCodes},
		{"every code is kept where the reply is not", anyStore, recordCodesNotKept},
		{"reply is kept apart from the slice it came in", anyStore, recordOwnIn},
		{"reply that was found belongs to the caller", anyStore, recordOwnOut},
		{"readable form is not returned", anyStore, recordReadable},
		{"readable form that cannot be had is done without", anyStore, recordUnreadable},
	}
}

// keeps fails t unless the store keeps rec for id.
func keeps(t *testing.T, r rig, id store.ID, rec store.Record) {
	t.Helper()
	c := r.completed(t, id, rec)
	want := recordOf(c, 1, rec)
	same(t, "Look", r.row(t, id), want)
	same(t, "Claim", r.lose(t, r.store, longClaim(id)), want)
}

func recordBytes(t *testing.T, r rig) {
	var every []byte
	for b := range 256 {
		every = append(every, byte(b), byte(255-b))
	}
	rec := record("random")
	keeps(t, r, store.ID{Scope: "tenant-1", Key: "random"}, rec)
	rec.Reply = every
	keeps(t, r, store.ID{Scope: "tenant-1", Key: "every"}, rec)
	rec.Reply = []byte{0}
	keeps(t, r, store.ID{Scope: "tenant-1", Key: "zero"}, rec)
}

func recordLarge(t *testing.T, r rig) {
	rec := record("large")
	rec.Reply = randomBytes("large", 1<<20)
	keeps(t, r, someID(), rec)
}

func recordEmpty(t *testing.T, r rig) {
	rec := record("empty")
	rec.Reply = nil
	keeps(t, r, store.ID{Scope: "tenant-1", Key: "nil"}, rec)
	rec.Reply = []byte{}
	keeps(t, r, store.ID{Scope: "tenant-1", Key: "empty"}, rec)
}

func recordCodes(t *testing.T, r rig) {
	everyCode(t, func(t *testing.T, c code.Code) {
		keeps(t, r, store.ID{Scope: "tenant-1", Key: c.String()}, store.Record{State: store.Completed, Code: c, Reply: []byte(c.String())})
	})
}

func recordCodesNotKept(t *testing.T, r rig) {
	everyCode(t, func(t *testing.T, c code.Code) {
		keeps(t, r, store.ID{Scope: "tenant-1", Key: c.String()}, store.Record{State: store.NotKept, Code: c})
	})
}

func everyCode(t *testing.T, f func(*testing.T, code.Code)) {
	t.Helper()
	for _, number := range slices.Sorted(maps.Keys(code.Code_name)) {
		c := code.Code(number)
		t.Run(c.String(), func(t *testing.T) { f(t, c) })
	}
}

func recordOwnIn(t *testing.T, r rig) {
	rec := record("reply")
	c := r.completed(t, someID(), rec)
	clear(rec.Reply)
	same(t, "after the caller used its slice again", r.row(t, someID()), recordOf(c, 1, record("reply")))
}

func recordOwnOut(t *testing.T, r rig) {
	c := r.completed(t, someID(), record("reply"))
	clear(r.row(t, someID()).Record.Reply)
	clear(r.lose(t, r.store, longClaim(someID())).Record.Reply)
	same(t, "after a caller wrote into what it had found", r.row(t, someID()), recordOf(c, 1, record("reply")))
}

func recordReadable(t *testing.T, r rig) {
	rec := record("reply")
	rec.Readable = readable(`{"charge": {"id": "ch_1", "amount": "1250", "note": "caf\u00e9 \ud83d\udd11"}}`)
	keeps(t, r, someID(), rec)
}

func recordUnreadable(t *testing.T, r rig) {
	for _, bad := range unreadables() {
		t.Run(bad.name, func(t *testing.T) {
			rec := record(bad.name)
			rec.Readable = bad.form
			keeps(t, r, store.ID{Scope: "tenant-1", Key: strings.ReplaceAll(bad.name, " ", "-")}, rec)
		})
	}
}

type unreadable struct {
	name string
	form json.Marshaler
}

// unreadables fail, or write what is no JSON or what a database that knows JSON may refuse.
func unreadables() []unreadable {
	const deep = 100_000
	return []unreadable{
		{"fails", failing{errors.New("storetest: this reply has no readable form")}},
		{"NUL", readable(`{"note": "a\u0000b"}`)},
		{"NUL as a name", readable(`{"\u0000": 1}`)},
		{"lone surrogate", readable(`{"note": "\ud800"}`)},
		{"raw NUL", readable("{\"note\": \"a\x00b\"}")},
		{"invalid UTF-8", readable("{\"note\": \"\xff\xfe\"}")},
		{"huge number", readable(`{"amount": 1e200000}`)},
		{"deep", readable(strings.Repeat("[", deep) + strings.Repeat("]", deep))},
		{"unended", readable(`{"note": `)},
		{"not JSON", readable(`<note/>`)},
		{"two values", readable(`{} {}`)},
		{"nothing", readable(nil)},
	}
}

// readable writes itself.
type readable []byte

func (r readable) MarshalJSON() ([]byte, error) { return bytes.Clone(r), nil }

type failing struct{ err error }

func (f failing) MarshalJSON() ([]byte, error) { return nil, fmt.Errorf("marshal: %w", f.err) }

package storetest

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Effects are a handler's own writes in the attempts of one transactional store: rows with a name in a table of the
// test's, say. All fields are required.
type Effects struct {
	// Write makes an effect called name in the attempt's transaction, which it takes from a context that the attempt's
	// Context returned.
	Write func(ctx context.Context, name string) error
	// Count returns how many effects called name are committed. It is called while an attempt is in flight, too, and does
	// not wait for it.
	Count func(ctx context.Context, name string) (int, error)
	// Fail has a statement fail in the attempt's transaction, so that the transaction cannot be committed as it is. It
	// returns an error where the statement did not fail.
	Fail func(ctx context.Context) error
}

func effectsTests() []subtest {
	const needed = transactionalStore | handlerWrites
	return []subtest{
		{"commit with the record, not before", needed, effectsCommit},
		{"commit with a reply that is not kept", needed, effectsNotKept},
		{"are undone by Release", needed, effectsRelease},
		{"are undone by an error that is kept", needed, effectsError},
		{"are kept with an error where asked", needed, effectsKept},
		{"outlive a readable form that cannot be had", needed, effectsUnreadable},
		{"of a failed transaction cannot be completed", needed, effectsRejected},
		{"of a failed transaction cannot be kept with an error", needed, effectsRejectedError},
		{"of a failed transaction are undone by an error that is kept", needed, effectsFailedError},
		{"of a failed transaction are undone by Release", needed, effectsFailedRelease},
		{"of a take-over commit only if it wins", needed | leasedRows, effectsBeside},
	}
}

const effect = "effect-1"

// write makes the effect in h's transaction.
func (r rig) write(t *testing.T, h *held) {
	t.Helper()
	var err error
	r.within(t, "Effects.Write", func(ctx context.Context) { err = r.effects.Write(h.attempt.Context(ctx), effect) })
	if err != nil {
		t.Fatalf("Effects.Write: %v", err)
	}
}

func (r rig) fail(t *testing.T, h *held) {
	t.Helper()
	var err error
	r.within(t, "Effects.Fail", func(ctx context.Context) { err = r.effects.Fail(h.attempt.Context(ctx)) })
	if err != nil {
		t.Fatalf("Effects.Fail: %v", err)
	}
}

// effected fails t unless as many effects are committed.
func (r rig) effected(t *testing.T, want int) {
	t.Helper()
	var got int
	var err error
	r.within(t, "Effects.Count", func(ctx context.Context) { got, err = r.effects.Count(ctx, effect) })
	if err != nil {
		t.Fatalf("Effects.Count: %v", err)
	}
	if got != want {
		t.Fatalf("%d effects are committed, want %d", got, want)
	}
}

func failure() store.Record {
	rec := record("declined")
	rec.Code = code.Code_FAILED_PRECONDITION
	return rec
}

func effectsCommit(t *testing.T, r rig) {
	for i, keepWrites := range []bool{false, true} { // which says nothing here
		c := longClaim(numberedIDs(2)[i])
		h := r.win(t, r.store, c)
		r.write(t, h)
		r.effected(t, i)
		if err := h.tryComplete(t, record("reply"), keepWrites); err != nil {
			t.Fatalf("Complete: %v", err)
		}
		r.effected(t, i+1)
		same(t, "after Complete", r.row(t, c.ID), recordOf(c, 1, record("reply")))
	}
}

func effectsNotKept(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	r.write(t, h)
	h.complete(t, notKept())
	r.effected(t, 1)
}

func effectsRelease(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	r.write(t, h)
	h.release(t)
	r.effected(t, 0)
}

func effectsError(t *testing.T, r rig) {
	c := longClaim(someID())
	h := r.win(t, r.store, c)
	r.write(t, h)
	h.complete(t, failure())
	r.effected(t, 0)
	same(t, "after Complete", r.row(t, someID()), recordOf(c, 1, failure()))
}

func effectsKept(t *testing.T, r rig) {
	c := longClaim(someID())
	h := r.win(t, r.store, c)
	r.write(t, h)
	if err := h.tryComplete(t, failure(), true); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	r.effected(t, 1)
	same(t, "after Complete", r.row(t, someID()), recordOf(c, 1, failure()))
}

func effectsUnreadable(t *testing.T, r rig) {
	for i, bad := range unreadables() {
		h := r.win(t, r.store, longClaim(store.ID{Scope: bad.name, Key: "key"}))
		r.write(t, h)
		rec := record(bad.name)
		rec.Readable = bad.form
		h.complete(t, rec)
		r.effected(t, i+1)
	}
}

func effectsRejected(t *testing.T, r rig)      { rejected(t, r, record("reply"), false) }
func effectsRejectedError(t *testing.T, r rig) { rejected(t, r, failure(), true) }

func rejected(t *testing.T, r rig, rec store.Record, keepWrites bool) {
	t.Helper()
	h := r.win(t, r.store, longClaim(someID()))
	r.write(t, h)
	r.fail(t, h)
	if err := h.tryComplete(t, rec, keepWrites); !errors.Is(err, store.ErrRejected) {
		t.Fatalf("Complete of a failed transaction returned %v, want store.ErrRejected", err)
	}
	r.effected(t, 0)
	absent(t, "after a Complete that was rejected", r.row(t, someID()))
	r.win(t, r.store, longClaim(someID()))
}

func effectsFailedError(t *testing.T, r rig) {
	c := longClaim(someID())
	h := r.win(t, r.store, c)
	r.write(t, h)
	r.fail(t, h)
	h.complete(t, failure())
	r.effected(t, 0)
	same(t, "after Complete", r.row(t, someID()), recordOf(c, 1, failure()))
}

func effectsFailedRelease(t *testing.T, r rig) {
	h := r.win(t, r.store, longClaim(someID()))
	r.write(t, h)
	r.fail(t, h)
	h.release(t)
	r.effected(t, 0)
	r.win(t, r.store, longClaim(someID()))
}

func effectsBeside(t *testing.T, r rig) {
	committed := 0
	for round, id := range numberedIDs(8) {
		late, first := r.overdue(t, id)
		taker := r.winOver(t, r.store, longClaim(id), first.Token)
		r.write(t, taker)
		if _, err := r.completeBoth(t, late, taker, round%2 == 0); err == nil {
			committed++
		}
		r.effected(t, committed)
	}
}

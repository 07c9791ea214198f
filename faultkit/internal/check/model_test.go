package check

import (
	"path/filepath"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// events is a journal of two calls' lines each, at times in nanoseconds.
type events struct {
	t     *testing.T
	lines []journal.Event
	ops   uint64
}

// call adds a call from start to end; an end of 0 is none.
func (e *events) call(start, end int64, invoke, ret journal.Event) *events {
	e.ops++
	invoke.Kind, invoke.Op, invoke.At, invoke.Key = journal.Invoke, e.ops, start, "k"
	e.lines = append(e.lines, invoke)
	if end > 0 {
		ret.Kind, ret.Op, ret.At = journal.Return, e.ops, end
		e.lines = append(e.lines, ret)
	}
	return e
}

const lease = int64(1e9)

func (e *events) claim(start, end int64, token string, ret journal.Event) *events {
	return e.call(start, end, journal.Event{Call: journal.Claim, Token: token, Lease: lease}, ret)
}

func (e *events) takeOver(start, end int64, token, seen string, ret journal.Event) *events {
	return e.call(start, end, journal.Event{Call: journal.TakeOver, Token: token, Seen: seen, Lease: lease}, ret)
}

func (e *events) complete(start, end int64, token string, r journal.Result) *events {
	return e.call(start, end, journal.Event{Call: journal.Complete, Token: token, Reply: "r" + token}, journal.Event{Result: r})
}

func (e *events) release(start, end int64, token string, r journal.Result) *events {
	return e.call(start, end, journal.Event{Call: journal.Release, Token: token}, journal.Event{Result: r})
}

func (e *events) look(start, end int64, f journal.Found) *events {
	return e.call(start, end, journal.Event{Call: journal.Look}, journal.Event{Result: journal.OK, Found: &f})
}

func won(attempt int) journal.Event {
	return journal.Event{Result: journal.OK, Won: true, Found: &journal.Found{State: store.InProgress, Attempt: attempt}}
}

func saw(f journal.Found) journal.Event { return journal.Event{Result: journal.OK, Found: &f} }

func completedBy(token string) journal.Found {
	return journal.Found{State: store.Completed, Token: token, Attempt: 1, Reply: "r" + token}
}

func inProgressBy(token string, attempt int, left int64) journal.Found {
	return journal.Found{State: store.InProgress, Token: token, Attempt: attempt, LeaseLeft: left}
}

// write writes the journal to a file, and returns its name.
func (e *events) write() string {
	e.t.Helper()
	name := filepath.Join(e.t.TempDir(), "journal")
	w, err := journal.Create(name)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, line := range e.lines {
		w.Append(line)
	}
	if err := w.Close(); err != nil {
		e.t.Fatal(err)
	}
	return name
}

// linearizable checks the history as a run's is checked.
func (e *events) linearizable(transactional bool) bool {
	e.t.Helper()
	h, err := readHistory([]string{e.write()})
	if err != nil {
		e.t.Fatal(err)
	}
	return porcupine.CheckOperations(model(transactional), h.operations("k", transactional))
}

func TestModelOfLeasedStore(t *testing.T) {
	later := lease + 10
	unknown := journal.Event{Result: journal.Unknown}
	for name, test := range map[string]struct {
		add  func(*events) *events
		want bool
	}{
		"claim, complete, replay": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.OK).claim(5, 6, "b", saw(completedBy("a")))
		}, true},
		"two claims at once": {func(e *events) *events {
			return e.claim(1, 4, "a", won(1)).claim(2, 3, "b", won(1))
		}, false},
		"claim after release": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).release(3, 4, "a", journal.OK).claim(5, 6, "b", won(1))
		}, true},
		"claim after completion": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.OK).claim(5, 6, "b", won(1))
		}, false},
		"take-over of a lease that is over": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2))
		}, true},
		"take-over with the wrong number": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(1))
		}, false},
		"take-over of a live lease": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(lease/2, lease/2+1, "b", "a", won(2))
		}, false},
		"take-over of another attempt than the one seen": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "x", won(2))
		}, false},
		"take-over of a renewed lease": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).
				call(lease/2, lease/2+1, journal.Event{Call: journal.Renew, Token: "a", Lease: lease}, journal.Event{Result: journal.OK}).
				takeOver(later, later+1, "b", "a", won(2))
		}, false},
		"late completion accepted": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2)).complete(later+2, later+3, "a", journal.OK)
		}, false},
		"late completion fenced": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2)).complete(later+2, later+3, "a", journal.Fenced)
		}, true},
		"completion fenced for no reason": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.Fenced)
		}, false},
		"late release accepted": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2)).release(later+2, later+3, "a", journal.OK)
		}, false},
		"late release fenced": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2)).release(later+2, later+3, "a", journal.Fenced)
		}, true},
		"late release fenced after the heir's": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2)).
				release(later+2, later+3, "b", journal.OK).release(later+4, later+5, "a", journal.Fenced)
		}, true},
		"late release accepted after the heir's": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).takeOver(later, later+1, "b", "a", won(2)).
				release(later+2, later+3, "b", journal.OK).release(later+4, later+5, "a", journal.OK)
		}, false},
		"release fenced for no reason": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).release(3, 4, "a", journal.Fenced)
		}, false},
		"release that failed and took effect": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).release(3, 4, "a", journal.Unknown).release(5, 6, "a", journal.Fenced).
				claim(7, 8, "b", won(1))
		}, true},
		"release that failed and took no effect": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).release(3, 4, "a", journal.Unknown).look(5, 6, inProgressBy("a", 1, lease))
		}, true},
		"another's reply replayed": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.OK).claim(5, 6, "b", saw(completedBy("x")))
		}, false},
		"completion that was never acknowledged": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 0, "a", journal.OK).look(100, 101, completedBy("a"))
		}, true},
		"completion that failed and was seen to, and then not": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.Unknown).
				look(5, 6, completedBy("a")).look(7, 8, inProgressBy("a", 1, lease))
		}, false},
		"claim that failed and is in the table": {func(e *events) *events {
			return e.claim(1, 2, "a", unknown).claim(3, 4, "b", saw(inProgressBy("a", 1, lease)))
		}, true},
		"take-over that lost an answer, and then the key": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).
				takeOver(later, 3*later, "b", "a", saw(inProgressBy("c", 3, lease))).
				takeOver(2*later+5, 2*later+6, "c", "b", won(3))
		}, true},
		"lease over too early": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).look(lease/2, lease/2+1, inProgressBy("a", 1, -1))
		}, false},
		"key lost": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).look(3, 4, journal.Found{State: store.Absent})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.add(&events{t: t}).linearizable(false); got != test.want {
				t.Errorf("linearizable: %v", got)
			}
		})
	}
}

func TestModelOfTransactionalStore(t *testing.T) {
	for name, test := range map[string]struct {
		add  func(*events) *events
		want bool
	}{
		"claim, complete, replay": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.OK).claim(5, 6, "b", saw(completedBy("a")))
		}, true},
		"claim while one that completes holds the key": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).claim(3, 4, "b", won(1)).complete(5, 6, "a", journal.OK)
		}, false},
		"claim after one that was cut off": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).claim(3, 4, "b", won(1)).complete(5, 6, "b", journal.OK).complete(7, 8, "a", journal.Unknown)
		}, true},
		"two completions": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.OK).claim(5, 6, "b", won(1)).complete(7, 8, "b", journal.OK)
		}, false},
		"row of an attempt in flight not seen": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).look(3, 4, journal.Found{State: store.Absent}).complete(5, 6, "a", journal.OK)
		}, true},
		"commit that was not acknowledged and took effect": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 0, "a", journal.OK).claim(9, 10, "b", saw(completedBy("a")))
		}, true},
		"acknowledged commit that is gone": {func(e *events) *events {
			return e.claim(1, 2, "a", won(1)).complete(3, 4, "a", journal.OK).look(5, 6, journal.Found{State: store.Absent})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.add(&events{t: t}).linearizable(true); got != test.want {
				t.Errorf("linearizable: %v", got)
			}
		})
	}
}

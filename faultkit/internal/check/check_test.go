package check

import (
	"strings"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/load"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

// ran adds a handler's run.
func (e *events) ran(at int64, token, charge string) *events {
	e.lines = append(e.lines, journal.Event{At: at, Kind: journal.Run, Key: "k", Token: token, Attempt: 1, Charge: charge})
	return e
}

// clean is a run in which all was right: one key, one attempt, one charge, two answers.
func clean(e *events, transactional bool) Input {
	e.claim(1, 2, "a", won(1)).ran(3, "a", "ch_a").complete(4, 5, "a", journal.OK)
	return Input{
		Transactional: transactional,
		Clients: load.Log{
			Requests: map[string]load.Request{"k": {Key: "k", Card: target.CardOK}},
			Answers:  map[string][]load.Answer{"k": {{Key: "k", Charge: "ch_a"}, {Key: "k", Charge: "ch_a", Replayed: true}}},
		},
		Captured: map[string]map[string]bool{"k": {"derived": true}},
		Final: rig.Final{
			At:      100,
			Rows:    map[string]journal.Found{"k": completedBy("a")},
			Charges: []rig.Charge{{ID: "ch_a", Key: "k", Token: "a"}},
		},
	}
}

func violations(t *testing.T, e *events, in Input) []string {
	t.Helper()
	in.Journals = []string{e.write()}
	report, err := Check(in)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, v := range report.Violations {
		all = append(all, v.What)
	}
	return all
}

func TestNothingIsFoundWhereAllIsRight(t *testing.T) {
	for _, transactional := range []bool{true, false} {
		e := &events{t: t}
		in := clean(e, transactional)
		if found := violations(t, e, in); len(found) > 0 {
			t.Errorf("transactional %v: %q", transactional, found)
		}
	}
}

// Each case spoils a clean run in one way.
func TestViolationIsFound(t *testing.T) {
	const both, transactional, leased = "both", "transactional", "leased"
	again := func(e *events) { e.ran(6, "a", "ch_b") }
	for name, test := range map[string]struct {
		mode  string
		spoil func(*events, *Input)
		want  string
	}{
		"second charge": {transactional, func(e *events, in *Input) {
			again(e)
			in.Final.Charges = append(in.Final.Charges, rig.Charge{ID: "ch_b", Key: "k", Token: "a"})
		}, "it has 2 charges"},
		"charge lost": {both, func(_ *events, in *Input) { in.Final.Charges = nil }, ""},
		"charge of a declined call": {transactional, func(_ *events, in *Input) {
			in.Clients.Requests["k"] = load.Request{Key: "k", Card: target.CardDeclined}
		}, "has 1 charges instead of 0"},
		"charge that no run made": {both, func(_ *events, in *Input) {
			in.Final.Charges = append(in.Final.Charges, rig.Charge{ID: "ch_x", Key: "k", Token: "a"})
		}, "which no run of the key made"},
		"charge of a key that nobody sent": {both, func(_ *events, in *Input) {
			in.Final.Charges = append(in.Final.Charges, rig.Charge{ID: "ch_x", Key: "x", Token: "a"})
		}, "a key that no client sent"},
		"answer that no run made": {both, func(_ *events, in *Input) { in.Clients.Answers["k"][1].Charge = "ch_x" }, "which no run of the key made"},
		"answers that differ": {both, func(e *events, in *Input) {
			again(e)
			in.Clients.Answers["k"][1].Charge = "ch_b"
		}, "two answers differ"},
		"answer of a fenced attempt": {leased, func(e *events, in *Input) {
			e.claim(20, 21, "b", won(1)).ran(22, "b", "ch_b").complete(23, 24, "b", journal.Fenced)
			in.Clients.Answers["k"][1].Charge = "ch_b"
			in.Final.Charges = append(in.Final.Charges, rig.Charge{ID: "ch_b", Key: "k", Token: "b"})
		}, "the reply of an attempt that had lost its key"},
		"answer whose row is gone": {both, func(_ *events, in *Input) { in.Final.Rows = nil }, "has no row"},
		"key in progress at the end": {leased, func(_ *events, in *Input) {
			in.Final.Rows["k"] = inProgressBy("a", 1, -1)
		}, "it is still in progress"},
		"two derived keys": {both, func(_ *events, in *Input) { in.Captured["k"]["other"] = true }, "2 different keys"},
		"derived key of two keys": {both, func(_ *events, in *Input) {
			in.Captured["x"] = map[string]bool{"derived": true}
		}, "shares a derived key"},
		"run without a claim":         {both, func(e *events, _ *Input) { e.ran(6, "x", "ch_x") }, "without having won the key"},
		"one attempt, two runs":       {both, func(e *events, _ *Input) { again(e) }, "ran twice"},
		"handler told another number": {both, func(e *events, _ *Input) { e.lines[len(e.lines)-3].Attempt = 2 }, "its handler was told 2"},
		"claim of a key that is held": {leased, func(e *events, _ *Input) { e.claim(3, 4, "b", won(1)) }, "which nobody had released"},
		"claim after a release that was fenced": {leased, func(e *events, _ *Input) {
			e.release(3, 4, "x", journal.Fenced).claim(5, 6, "b", won(1))
		}, "which nobody had released"},
		"claim of a completed key": {both, func(e *events, _ *Input) { e.claim(6, 7, "b", won(1)) }, "after a had completed it"},
		"take-over of a live lease": {leased, func(e *events, _ *Input) {
			e.takeOver(lease/2, lease/2+1, "b", "a", won(2))
		}, "b won the key while a had a lease on it"},
		"two attempts completed": {both, func(e *events, _ *Input) {
			e.claim(6, 7, "b", won(1)).complete(8, 9, "b", journal.OK)
		}, "the tokens of 2 attempts"},
		"lease that lasts too long": {leased, func(e *events, _ *Input) { e.look(3, 4, inProgressBy("a", 1, 2*lease)) }, "longer than it had asked for"},
		"answer of another kind":    {both, func(_ *events, in *Input) { in.Clients.Answers["k"][0].Declined = true }, "as no tok_ok is"},
		"replay of what was not kept": {leased, func(e *events, in *Input) {
			e.claim(20, 21, "b", won(1)).ran(22, "b", "ch_b").complete(23, 24, "b", journal.Unknown)
			in.Clients.Answers["k"][1].Charge = "ch_b"
		}, "a replay of the reply of ch_b"},
		"client without an answer": {both, func(_ *events, in *Input) { in.Clients.Abandoned = []string{"k"} }, "had no answer"},
		"wrong refusal":            {both, func(_ *events, in *Input) { in.Clients.Wrong = []string{"refused"} }, "refused"},
		"goroutines left":          {both, func(_ *events, in *Input) { in.End.Goroutines = map[int]int{1: 2} }, "2 goroutines left"},
		"connections left":         {both, func(_ *events, in *Input) { in.End.Connections = 3 }, "3 connections"},
		"server that died":         {both, func(_ *events, in *Input) { in.End.Faults = []string{"died"} }, "died"},
		"rows left":                {both, func(_ *events, in *Input) { in.Final.Left = []string{"5 rows"} }, "5 rows"},
	} {
		for _, mode := range []string{transactional, leased} {
			if test.mode != both && test.mode != mode {
				continue
			}
			t.Run(name+", "+mode, func(t *testing.T) {
				e := &events{t: t}
				in := clean(e, mode == transactional)
				test.spoil(e, &in)
				if found := strings.Join(violations(t, e, in), "\n"); found == "" || !strings.Contains(found, test.want) {
					t.Errorf("found %q, not %q", found, test.want)
				}
			})
		}
	}
}

package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/load"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Input is what a run left behind.
type Input struct {
	Transactional bool
	Journals      []string
	Clients       load.Log
	Captured      map[string]map[string]bool // by key: the derived keys that the bank was sent
	Final         rig.Final                  // the tables once the targets had ended
	End           rig.End
}

// Report is what the checks found.
type Report struct {
	Violations   []Violation
	Keys         int
	Linearizable int            // keys
	Outcomes     map[string]int // of the guard, as its observer was told
	Runs         int            // of handlers
	AfterRelease int            // attempts that followed one that had released its key
	TakeOvers    int            // attempts that followed one that had died or lost its lease
	Uncertain    int            // answers whose completion was not acknowledged
	Fenced       int            // completions and releases that were refused
}

// Violation is something that must not be.
type Violation struct {
	Key     string // "" where it is about none
	What    string
	History []string // the key's calls
}

// checker is a check at work.
type checker struct {
	in      Input
	history *history
	charges map[string][]rig.Charge // by key
	report  Report
}

// Check checks everything. It fails only where a journal cannot be read.
func Check(in Input) (Report, error) {
	h, err := readHistory(in.Journals)
	if err != nil {
		return Report{}, err
	}
	c := &checker{in: in, history: h, charges: make(map[string][]rig.Charge)}
	for _, charge := range in.Final.Charges {
		c.charges[charge.Key] = append(c.charges[charge.Key], charge)
	}
	c.report.Keys, c.report.Outcomes = len(in.Clients.Requests), h.outcomes
	h.look(in.Final)
	for _, key := range slices.Sorted(maps.Keys(in.Clients.Requests)) {
		c.answers(key)
		c.effects(key)
		c.attempts(key)
		c.leases(key)
		c.bank(key)
	}
	c.linearizable()
	c.unknownKeys()
	c.leftOver()
	return c.report, nil
}

// look adds what the table holds at the end to each key's history.
func (h *history) look(final rig.Final) {
	for key := range h.calls {
		f := final.Rows[key] // absent where there is none
		e := journal.Event{Call: journal.Look, Key: key, Result: journal.OK, Found: &f}
		h.calls[key] = append(h.calls[key], &call{Event: e, start: final.At, end: final.At})
	}
}

func (c *checker) violation(key, what string) {
	v := Violation{Key: key, What: what}
	if key != "" {
		v.History = c.history.describe(key)
	}
	c.report.Violations = append(c.report.Violations, v)
}

// answers checks what clients took for the end of their calls.
func (c *checker) answers(key string) {
	answers := c.in.Clients.Answers[key]
	card := c.in.Clients.Requests[key].Card
	var certain string // the one charge that is known to be kept
	for _, a := range answers {
		if a.Declined != target.Declines(card) {
			c.violation(key, fmt.Sprintf("it was answered as no %s is: %+v", card, a))
		}
		r, ran := c.history.byCharge[a.Charge]
		if !ran || r.Key != key {
			c.violation(key, "an answer names the charge "+a.Charge+", which no run of the key made")
			continue
		}
		if !c.kept(key, r.Token) {
			if a.Replayed {
				c.violation(key, "a client was given a replay of the reply of "+a.Charge+", which was not kept")
			}
			continue
		}
		if certain != "" && certain != a.Charge {
			c.violation(key, fmt.Sprintf("two answers differ: %s and %s", certain, a.Charge))
		}
		certain = a.Charge
	}
	if row := c.in.Final.Rows[key]; certain != "" && row.Token != c.history.byCharge[certain].Token {
		c.violation(key, fmt.Sprintf("it was answered with %s, and the table holds the reply of another attempt: %+v", certain, row))
	}
}

// kept reports whether an attempt whose reply a client was given is known to have kept it.
func (c *checker) kept(key, token string) bool {
	if c.history.completed(key, token) {
		return true
	}
	completions := c.history.of(key, token, journal.Complete)
	row := c.in.Final.Rows[key]
	switch {
	case len(completions) == 0:
		c.violation(key, "a client has the reply of an attempt that did not complete")
	case completions[0].Result == journal.Fenced:
		c.violation(key, "a client has the reply of an attempt that had lost its key")
	case row.State == store.Completed && row.Token == token:
		return true // its acknowledgement was lost
	case c.in.Transactional:
		c.violation(key, "a client has the reply of an attempt whose transaction did not commit")
	default:
		c.report.Uncertain++ // leased: the caller gets the handler's own reply, and a retry may run again
	}
	return false
}

// effects checks the ledger.
func (c *checker) effects(key string) {
	charges, answers := c.charges[key], c.in.Clients.Answers[key]
	for _, charge := range charges {
		if r := c.history.byCharge[charge.ID]; r.Key != key || r.Token != charge.Token {
			c.violation(key, fmt.Sprintf("the ledger has the charge %s, which no run of the key made", charge.ID))
		}
	}
	if !c.in.Transactional {
		for _, a := range answers {
			if !slices.ContainsFunc(charges, func(charge rig.Charge) bool { return charge.ID == a.Charge }) {
				c.violation(key, "it was answered with "+a.Charge+", which is not in the ledger")
			}
		}
		return
	}
	if len(charges) > 1 {
		c.violation(key, fmt.Sprintf("it has %d charges", len(charges)))
	}
	if len(answers) == 0 {
		return
	}
	card, want := c.in.Clients.Requests[key].Card, 1
	if card == target.CardDeclined || card == target.CardBroken {
		want = 0
	}
	switch {
	case len(charges) != want:
		c.violation(key, fmt.Sprintf("it was answered (%s), and has %d charges instead of %d", card, len(charges), want))
	case want == 1 && charges[0].ID != answers[0].Charge:
		c.violation(key, fmt.Sprintf("it was answered with %s, and its charge is %s", answers[0].Charge, charges[0].ID))
	}
}

// bank checks the calls on another system: one derived key for each key.
func (c *checker) bank(key string) {
	derived := c.in.Captured[key]
	if len(derived) > 1 {
		c.violation(key, fmt.Sprintf("the bank was sent %d different keys for it", len(derived)))
	}
	if len(derived) == 0 && len(c.in.Clients.Answers[key]) > 0 {
		c.violation(key, "it was answered, and the bank knows nothing of it")
	}
}

// unknownKeys checks that nothing was done that nobody asked for, and that no two keys share a derived key.
func (c *checker) unknownKeys() {
	owner := make(map[string]string)
	for key, derived := range c.in.Captured {
		for d := range derived {
			if other, taken := owner[d]; taken {
				c.violation(key, "it shares a derived key with "+other)
			}
			owner[d] = key
		}
	}
	for key := range c.charges {
		if _, asked := c.in.Clients.Requests[key]; !asked {
			c.violation(key, "the ledger has a charge for a key that no client sent")
		}
	}
	for key := range c.in.Final.Rows {
		if _, asked := c.in.Clients.Requests[key]; !asked {
			c.violation(key, "the table has a row for a key that no client sent")
		}
	}
}

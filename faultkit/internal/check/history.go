// Package check says what was wrong in a run: from the targets' journals, the clients' logs, the tables and the bank.
package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
)

// call is one call of the store's, from its invocation to its return.
type call struct {
	journal.Event // the invocation, with the result of the return

	start, end int64 // end is the end of time where there was no return
}

// history is what the journals say.
type history struct {
	calls    map[string][]*call         // by key
	runs     map[string][]journal.Event // by key: of handlers
	byCharge map[string]journal.Event
	outcomes map[string]int
}

// readHistory reads all journals.
func readHistory(names []string) (*history, error) {
	h := &history{
		calls: make(map[string][]*call), runs: make(map[string][]journal.Event),
		byCharge: make(map[string]journal.Event), outcomes: make(map[string]int),
	}
	for _, name := range names {
		if err := h.read(name); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *history) read(name string) error {
	open := make(map[uint64]*call)
	for e, err := range journal.Read(name) {
		if err != nil {
			return err
		}
		switch e.Kind {
		case journal.Invoke:
			c := &call{Event: e, start: e.At, end: math.MaxInt64}
			c.Result = journal.Unknown // until it returns
			open[e.Op] = c
			h.calls[e.Key] = append(h.calls[e.Key], c)
		case journal.Return:
			c, ok := open[e.Op]
			if !ok {
				return fmt.Errorf("%s: a return of call %d, which was not made", name, e.Op)
			}
			delete(open, e.Op)
			c.end, c.Result, c.Won, c.Lost, c.Found, c.Text = e.At, e.Result, e.Won, e.Lost, e.Found, e.Text
		case journal.Run:
			h.runs[e.Key] = append(h.runs[e.Key], e)
			h.byCharge[e.Charge] = e
		case journal.Outcome:
			h.outcomes[e.Text]++
		}
	}
	return nil
}

// of returns a key's calls of some kind by an attempt, in their order.
func (h *history) of(key, token string, kind journal.Call) []*call {
	var found []*call
	for _, c := range h.calls[key] {
		if c.Call == kind && c.Token == token {
			found = append(found, c)
		}
	}
	return found
}

// wins returns a key's claims and take-overs that won, in their order.
func (h *history) wins(key string) []*call {
	var wins []*call
	for _, c := range h.calls[key] {
		if c.Won {
			wins = append(wins, c)
		}
	}
	slices.SortFunc(wins, func(a, b *call) int { return cmp.Compare(a.end, b.end) })
	return wins
}

// completed reports whether an attempt's reply is known to be kept.
func (h *history) completed(key, token string) bool {
	return slices.ContainsFunc(h.of(key, token, journal.Complete), func(c *call) bool { return c.Result == journal.OK })
}

// describe writes a key's calls down for people, in the order in which they were made.
func (h *history) describe(key string) []string {
	calls := slices.Clone(h.calls[key])
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.start, b.start) })
	var lines []string
	for _, c := range calls {
		lines = append(lines, c.describe(calls[0].start))
	}
	return lines
}

func (c *call) describe(zero int64) string {
	at := func(t int64) string {
		if t == math.MaxInt64 {
			return "never"
		}
		return time.Duration(t - zero).Round(10 * time.Microsecond).String()
	}
	text := fmt.Sprintf("%s to %s: %s by %.6s", at(c.start), at(c.end), c.Call, cmp.Or(c.Token, "anyone"))
	if c.Seen != "" {
		text += fmt.Sprintf(" of %.6s", c.Seen)
	}
	text += " → " + string(c.Result)
	switch {
	case c.Won:
		text += ", won"
	case c.Lost:
		text += ", lost"
	}
	if f := c.Found; f != nil {
		text += fmt.Sprintf(", found %s of %.6s, attempt %d, lease left %v", f.State, f.Token, f.Attempt, time.Duration(f.LeaseLeft))
	}
	if c.Text != "" {
		text += " (" + c.Text + ")"
	}
	return text
}

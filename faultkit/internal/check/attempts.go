package check

import (
	"fmt"
	"slices"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
)

// attempts checks that each run had a claim of its own, and that an attempt follows another only where that one had
// released the key, died, or lost its lease.
func (c *checker) attempts(key string) {
	wins := c.history.wins(key)
	c.report.Runs += len(c.history.runs[key])
	ran := make(map[string]bool)
	for _, r := range c.history.runs[key] {
		if ran[r.Token] {
			c.violation(key, fmt.Sprintf("the attempt %.6s ran twice", r.Token))
		}
		ran[r.Token] = true
		if !slices.ContainsFunc(wins, func(w *call) bool { return w.Token == r.Token }) {
			c.violation(key, fmt.Sprintf("the attempt %.6s ran without having won the key", r.Token))
		}
	}
	for i := 1; i < len(wins); i++ {
		c.follows(key, wins[i-1], wins[i])
	}
	for _, done := range c.history.calls[key] {
		if done.Call != journal.Complete || done.Result != journal.Fenced {
			continue
		}
		c.report.Fenced++
		if c.in.Transactional {
			c.violation(key, "an attempt that held the key's lock found another's row: the lock did not hold")
		}
	}
}

// follows checks that a win may come after the one before it. Where they overlap, which of them came first is for the
// search for an order to say.
func (c *checker) follows(key string, before, after *call) {
	if slices.ContainsFunc(c.history.of(key, before.Token, journal.Release), func(r *call) bool { return r.start <= after.end }) {
		c.report.AfterRelease++
		return
	}
	c.report.AfterLoss++
	for _, done := range c.history.of(key, before.Token, journal.Complete) {
		if done.Result == journal.OK && done.end < after.start {
			c.violation(key, fmt.Sprintf("the attempt %.6s won the key after %.6s had completed it", after.Token, before.Token))
		}
	}
	if !c.in.Transactional && before.end < after.start && after.end < c.leaseEnd(key, before)-int64(leaseSlack) {
		c.violation(key, fmt.Sprintf("the attempt %.6s won the key while %.6s had a lease on it", after.Token, before.Token))
	}
}

// leaseEnd is when an attempt's lease is over at the earliest.
func (c *checker) leaseEnd(key string, win *call) int64 {
	end := win.start + win.Lease
	for _, r := range c.history.of(key, win.Token, journal.Renew) {
		if r.Result == journal.OK && !r.Lost && alone(c.history.calls[key], r) {
			end = max(end, r.start+r.Lease)
		}
	}
	return end
}

// leftOver checks that nothing is left once the faults have ended.
func (c *checker) leftOver() {
	for _, what := range c.in.Clients.Wrong {
		c.violation("", what)
	}
	for _, key := range c.in.Clients.Abandoned {
		c.violation(key, "a client had no answer for it when the faults were long over")
	}
	for _, fault := range c.in.End.Faults {
		c.violation("", fault)
	}
	for slot, n := range c.in.End.Goroutines {
		c.violation("", fmt.Sprintf("server %d had %d goroutines left when it had stopped; its log has them", slot, n))
	}
	if n := c.in.End.Connections; n > 0 {
		c.violation("", fmt.Sprintf("%d connections to the database are left", n))
	}
	for _, what := range c.in.Final.Left {
		c.violation("", what)
	}
	for key, row := range c.in.Final.Rows {
		if row.State == "in_progress" {
			c.violation(key, fmt.Sprintf("it is still in progress: %+v", row))
		}
	}
	for key, answers := range c.in.Clients.Answers {
		if _, ok := c.in.Final.Rows[key]; !ok && len(answers) > 0 {
			c.violation(key, "it was answered, and has no row")
		}
	}
}

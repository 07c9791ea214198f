package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// attempts checks that each run had a claim of its own, that only one attempt's token was accepted in the end, and that an
// attempt follows another only where that one had released the key, died, or lost its lease.
func (c *checker) attempts(key string) {
	wins := c.history.wins(key)
	c.runs(key, wins)
	for i, win := range wins {
		if i > 0 {
			c.follows(key, wins[i-1], win)
		}
		if win.Call == journal.TakeOver {
			c.tookOver(key, wins, win)
		}
	}
	completed := make(map[string]bool)
	for _, done := range c.history.calls[key] {
		if done.Call == journal.Complete && done.Result == journal.OK {
			completed[done.Token] = true
		}
		if done.Result == journal.Fenced {
			c.report.Fenced++
			if c.in.Transactional {
				c.violation(key, "an attempt that held the key's lock found another's row: the lock did not hold")
			}
		}
	}
	if len(completed) > 1 {
		c.violation(key, fmt.Sprintf("the store accepted the tokens of %d attempts that completed", len(completed)))
	}
}

// runs checks that each run is that of a claim which won, and the only one.
func (c *checker) runs(key string, wins []*call) {
	ran := make(map[string]bool)
	for _, r := range c.history.runs[key] {
		c.report.Runs++
		if ran[r.Token] {
			c.violation(key, fmt.Sprintf("the attempt %.6s ran twice", r.Token))
		}
		ran[r.Token] = true
		n := slices.IndexFunc(wins, func(w *call) bool { return w.Token == r.Token })
		switch {
		case n < 0:
			c.violation(key, fmt.Sprintf("the attempt %.6s ran without having won the key", r.Token))
		case wins[n].Found.Attempt != r.Attempt:
			c.violation(key, fmt.Sprintf("the attempt %.6s is number %d, and its handler was told %d", r.Token, wins[n].Found.Attempt, r.Attempt))
		}
	}
}

// follows checks that a win may come after the one before it. Where they overlap, as they do when the answer to one comes
// late, which of them came first is for the search for an order to say.
func (c *checker) follows(key string, before, after *call) {
	for _, done := range c.history.of(key, before.Token, journal.Complete) {
		if done.Result == journal.OK && done.end < after.start {
			c.violation(key, fmt.Sprintf("the attempt %.6s won the key after %.6s had completed it", after.Token, before.Token))
		}
	}
	switch released := c.released(key, after); {
	case after.Call == journal.TakeOver, c.in.Transactional && !slices.Contains(released, before.Token):
		c.report.TakeOvers++
	case len(released) == 0 && before.end < after.start:
		c.violation(key, fmt.Sprintf("the attempt %.6s claimed the key, which nobody had released", after.Token))
	default:
		c.report.AfterRelease++
	}
}

// tookOver checks that a take-over found a lease that was over. Where the attempt whose lease it was is not known to have
// won, nothing is known of its lease either.
func (c *checker) tookOver(key string, wins []*call, win *call) {
	n := slices.IndexFunc(wins, func(w *call) bool { return w.Token == win.Seen })
	if n >= 0 && win.end < c.leaseEnd(key, wins[n])-int64(leaseSlack) {
		c.violation(key, fmt.Sprintf("the attempt %.6s won the key while %.6s had a lease on it", win.Token, win.Seen))
	}
}

// released returns the attempts that may have released the key before a win.
func (c *checker) released(key string, win *call) (tokens []string) {
	for _, r := range c.history.calls[key] {
		if r.Call == journal.Release && r.Result != journal.Fenced && r.Token != win.Token && r.start <= win.end {
			tokens = append(tokens, r.Token)
		}
	}
	return tokens
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

// leases checks that no lease that was seen outlasts all that was asked for: no key is held longer than that by an
// attempt that has died.
func (c *checker) leases(key string) {
	latest := make(map[string]int64) // by token: the end of its lease
	for _, asked := range c.history.calls[key] {
		if asked.Lease == 0 {
			continue // no claim, take-over or renewal
		}
		end := int64(math.MaxInt64) // a call that was not acknowledged may take effect at any time
		if asked.Won || asked.Call == journal.Renew && asked.Result == journal.OK {
			end = asked.end + asked.Lease
		}
		latest[asked.Token] = max(latest[asked.Token], end)
	}
	for _, saw := range c.history.calls[key] {
		f := saw.Found
		if f == nil || f.State != store.InProgress || outOfSight(f) {
			continue
		}
		if longer := saw.start + f.LeaseLeft - latest[f.Token]; longer > int64(leaseSlack) {
			c.violation(key, fmt.Sprintf("the attempt %.6s had a lease %v longer than it had asked for", f.Token, time.Duration(longer)))
		}
	}
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
		if row.State == store.InProgress {
			c.violation(key, fmt.Sprintf("it is still in progress: %+v", row))
		}
	}
	for key, answers := range c.in.Clients.Answers {
		if _, ok := c.in.Final.Rows[key]; !ok && len(answers) > 0 {
			c.violation(key, "it was answered, and has no row")
		}
	}
}

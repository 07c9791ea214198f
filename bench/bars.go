package main

import (
	"fmt"
)

// bar is something that a number has to reach, and whether it does.
type bar struct {
	what, bar, measured, met string
}

const (
	met         = "met"
	missed      = "**not met**"
	notMeasured = "not measured"
	noBar       = "–"
)

// check says whether a median is within a limit.
func check(what string, s spread, limit string, ok func(median float64) bool) bar {
	b := bar{what: what, bar: limit, measured: ratioText(s), met: notMeasured}
	switch {
	case s.N == 0:
	case ok == nil:
		b.met = noBar
	case ok(s.Median):
		b.met = met
	default:
		b.met = missed
	}
	return b
}

func atLeast(limit float64) func(float64) bool { return func(v float64) bool { return v >= limit } }
func atMost(limit float64) func(float64) bool  { return func(v float64) bool { return v <= limit } }

// bars are the project's own.
func (r *recording) bars() []bar {
	all := r.firstCallBars()
	throughput := func(what, variant, against string, limit float64) {
		all = append(all, check(what, r.base.ratio(perSecond, atBase, variant, atBase, against), fmt.Sprintf("≥ %.2f", limit), atLeast(limit)))
	}
	throughput("replay, transactional, against an RPC that is one SELECT by key: throughput", "replay-transactional", "select", 0.70)
	throughput("the same, at another server than ran the first call: throughput", "replay-elsewhere-transactional", "select", 0.70)
	throughput("replay, leased, against the same: throughput", "replay-leased", "select", 0.80)
	throughput("the same, at another server than ran the first call: throughput", "replay-elsewhere-leased", "select", 0.80)
	throughput("no key sent, against no interceptor: throughput", "no-key", "no-interceptor", 0.98)
	for _, one := range r.inProcess {
		switch one.Call {
		case "no key":
			all = append(all, check("no key sent, in process: allocations more than without the interceptor", one.Allocs, "0", atMost(0.01)))
		case "first call":
			all = append(all,
				check("guard and interceptor on the memory store, beyond the bare call: µs", one.Extra, "≤ 6", atMost(6)),
				check("the same: allocations", one.Allocs, "≤ 30", atMost(30)))
		}
	}
	for _, mode := range []string{"transactional", "leased"} {
		all = append(all, check("first call, "+mode+", with many rows against an empty table: throughput",
			r.rows.ratio(perSecond, fullTable, mode, emptyTable, mode), "≥ 0.85", atLeast(0.85)))
	}
	for _, c := range []struct{ what, variant, against string }{
		{"first call, transactional, against Fiber's idempotency middleware (two transactions; HTTP/1.1)", "transactional", "fiber"},
		{"first call, leased, against the same", "leased", "fiber"},
		{"Fiber's middleware against no middleware in Fiber", "fiber", "fiber-bare"},
		{"first call, leased, against no guard", "leased", "bare"},
		{"replay, leased, against Fiber's (HTTP/1.1)", "replay-leased", "fiber-replay"},
	} {
		all = append(all, check(c.what+": throughput", r.base.ratio(perSecond, atBase, c.variant, atBase, c.against), noBar, nil))
	}
	return append(append(all, r.hotBars()...), r.sweepBars()...)
}

func (r *recording) firstCallBars() []bar {
	var all []bar
	for _, least := range []struct{ variant, about string }{
		{"least-plain", "the least by hand, written plainly (4 flights)"}, {"least-pipelined", "the least by hand, pipelined (2 flights)"},
	} {
		all = append(all,
			check("first call, transactional, against "+least.about+": throughput",
				r.base.ratio(perSecond, atBase, "transactional", atBase, least.variant), "≥ 0.90", atLeast(0.90)),
			check("the same: p99", r.base.ratio(p99, atBase, "transactional", atBase, least.variant), "≤ 1.25", atMost(1.25)))
	}
	return append(all,
		check("first call, transactional, against the bare handler: throughput",
			r.base.ratio(perSecond, atBase, "transactional", atBase, "bare"), noBar, nil),
		check("first call, leased, against the plain pattern by hand (insert, work, update): throughput",
			r.base.ratio(perSecond, atBase, "leased", atBase, "pattern"), "≥ 0.90", atLeast(0.90)),
		check("first call, leased, against the same with ON CONFLICT DO NOTHING: throughput",
			r.base.ratio(perSecond, atBase, "leased", atBase, "pattern-on-conflict"), noBar, nil))
}

func (r *recording) hotBars() []bar {
	var all []bar
	for _, h := range r.hot {
		b := bar{
			what: fmt.Sprintf("hot key, %d callers, waiting, %s", hotCallers, h.Mode), bar: "1 run, ≤ 2 statements a caller", met: missed,
			measured: fmt.Sprintf("%d run, %.2f statements in %.2f flights", h.Runs, h.Statements, h.Flights),
		}
		if h.Runs == 1 && h.Statements <= 2 {
			b.met = met
		}
		all = append(all, b)
	}
	return all
}

func (r *recording) sweepBars() []bar {
	var all []bar
	for _, s := range r.sweeping {
		rows := spreadOf(s.Rows)
		swept := check("the same: rows swept per second", rows, "≥ 20,000", atLeast(20_000))
		swept.measured = fmt.Sprintf("%s (%s – %s)", thousands(rows.Median), thousands(rows.Lower), thousands(rows.Upper))
		all = append(all,
			check("first call, "+s.Mode+", beside a sweep at full speed, against alone: throughput",
				spreadOf(ratios(s.Beside, s.Alone)), "≥ 0.90", atLeast(0.90)), swept,
			check("the same beside batches that are swept one right after the other", spreadOf(ratios(s.Restless, s.Alone)), noBar, nil))
	}
	return all
}

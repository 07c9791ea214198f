package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/check"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/fault"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/load"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

const (
	violationsShown = 10
	historiesShown  = 3
)

// printHead says what is about to happen.
func (r *round) printHead(world *rig.Rig) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, seed %d, for %v: %d servers, %d clients, lease %v\n",
		r.mode, r.seed, r.length.Round(time.Millisecond), r.servers, r.clients, r.lease)
	for i, s := range world.Servers {
		fmt.Fprintf(&b, "  server %d  %s\n", i, s.About)
	}
	if r.breaks != target.BreakNothing {
		fmt.Fprintf(&b, "  WITHOUT ITS %s: violations are to be found\n", strings.ToUpper(string(r.breaks)))
	}
	_, err := fmt.Fprint(r.out, b.String())
	return err
}

// printReport says what was done and found.
func (r *round) printReport(in check.Input, found result, clients *load.Load, took time.Duration) error {
	var b strings.Builder
	report := found.report
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s, seed %d: done in %v\n", r.mode, r.seed, took.Round(100*time.Millisecond))
	row("faults", "%d: %s", total(found.faults), counts(found.faults))
	for _, what := range r.notCovered(found) {
		row("NOT COVERED", "%s", what)
	}
	if n := in.End.BouncerDeaths; n > 0 {
		row("pgbouncer", "ended by itself %d times, and was started again", n)
	}
	row("calls", "%d under %d keys: %s", clients.Calls(), report.Keys, counts(in.Clients.Attempts))
	row("answers", "%d; the last one %v after the last fault; %d without an acknowledged completion",
		clients.Answers(), found.settled.Round(100*time.Millisecond), report.Uncertain)
	row("replays", "%d", clients.Replays())
	row("runs", "%d; %d followed one that had released its key; %d completions and releases fenced", report.Runs, report.AfterRelease, report.Fenced)
	row("takeovers", "%d from one that had died or lost its lease", report.TakeOvers)
	row("guard", "%s", counts(report.Outcomes))
	row("histories", "%d linearizable", report.Linearizable)
	row("violations", "%d", len(report.Violations))
	for i, v := range report.Violations {
		if i == violationsShown {
			fmt.Fprintf(&b, "    … and %d more\n", len(report.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "    %s\n", strings.TrimPrefix(fmt.Sprintf("key %s: %s", v.Key, v.What), "key : "))
		if i >= historiesShown {
			continue
		}
		for _, line := range v.History {
			fmt.Fprintf(&b, "      %s\n", line)
		}
	}
	if len(report.Violations) > 0 {
		fmt.Fprintf(&b, "  again: go run ./faultkit -mode %s -seed %d -for %v -servers %d -clients %d -lease %v -faults %s%s\n",
			r.mode, r.seed, r.length, r.servers, r.clients, r.lease, joined(r.kinds, ","), r.breakFlag())
	}
	_, err := fmt.Fprint(r.out, b.String())
	return err
}

// notCovered says what was asked for, or is by default, and was not done.
func (r *round) notCovered(found result) (all []string) {
	if r.bouncer == "" {
		all = append(all, fmt.Sprintf("PgBouncer: %v", r.without))
	}
	for _, kind := range r.kinds {
		if found.faults[kind] == 0 {
			all = append(all, fmt.Sprintf("fault %s: its turn did not come, or it could not be seen to be done", kind))
		}
	}
	return all
}

func (r *round) breakFlag() string {
	if r.breaks == target.BreakNothing {
		return ""
	}
	return " -break " + string(r.breaks)
}

func total(faults map[fault.Kind]int) (n int) {
	for _, count := range faults {
		n += count
	}
	return n
}

// counts lists numbers by name.
func counts[K ~string](numbers map[K]int) string {
	if len(numbers) == 0 {
		return "none"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, numbers[name]))
	}
	return strings.Join(parts, ", ")
}

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/check"
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
	if r.bouncer == "" {
		b.WriteString("  without PgBouncer\n")
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
		fmt.Fprintf(&b, "  %-12s  %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s, seed %d: done in %v\n", r.mode, r.seed, took.Round(100*time.Millisecond))
	row("faults", "%s", counts(found.faults))
	row("calls", "%d under %d keys: %s", clients.Calls(), report.Keys, counts(in.Clients.Attempts))
	row("answers", "%d, %d of them replays, %d without an acknowledged completion", clients.Answers(), clients.Replays(), report.Uncertain)
	row("guard", "%s", counts(report.Outcomes))
	row("attempts", "%d ran; %d followed one that had released its key, %d one that had died or lost it; %d completions fenced",
		report.Runs, report.AfterRelease, report.AfterLoss, report.Fenced)
	row("histories", "%d linearizable, %d undecided", report.Linearizable, report.Undecided)
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
		fmt.Fprintf(&b, "  again: go run ./faultkit -mode %s -seed %d -for %v -servers %d -clients %d -lease %v -faults %s\n",
			r.mode, r.seed, r.length, r.servers, r.clients, r.lease, joined(r.kinds, ","))
	}
	_, err := fmt.Fprint(r.out, b.String())
	return err
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

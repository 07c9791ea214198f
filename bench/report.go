package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// markdown is the report, with the plots where it stands beside them.
func (r *recording) markdown(plots bool) string {
	var b strings.Builder
	r.writeHead(&b)
	r.writeBars(&b)
	section := func(title, text string, names ...string) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, text)
		for _, figure := range r.figures() {
			for _, name := range names {
				if plots && figure.name == name {
					fmt.Fprintf(&b, "\n![%s](%s.svg)\n\n%s\n", figure.title, figure.name, figure.see)
				}
			}
		}
		b.WriteString("\n")
	}
	section("The base point", fmt.Sprintf("%d callers, messages of %d bytes, a table that was empty at the start, the Unix socket. "+
		"Calls per second are the rounds' median with the quartiles; p50 and p99 are of all calls; allocations are per call, of clients "+
		"and server together. What is sent and written was counted over %d calls of one caller on warm connections, with what follows "+
		"behind an answer; WAL is the rounds' median. A row version is an insert or an update.",
		baseCallers, smallMessage, countedCalls), "throughput", "latency", "ratios")
	r.writeVariants(&b, r.base)
	for _, group := range []struct {
		title, text, figure string
		results             results
	}{
		{"Callers", "All callers share one process's pool of at most " + strconv.Itoa(maxConns) + " connections.", "callers", r.callers},
		{"Messages", "Of the request and, as the handler sends it back, of the answer, which is stored.", "messages", r.messages},
		{"Rows", fmt.Sprintf("%s finished rows with random keys, loaded before, against a table that was empty.", thousands(float64(r.config.rows))),
			"rows", r.rows},
		{"Unix socket and TCP", "The same server, through its socket and through the loopback interface.", "transport", r.transport},
	} {
		if len(group.results) > 0 {
			section(group.title, group.text, group.figure)
			writeConditions(&b, group.results)
		}
	}
	r.writeAlone(&b, section)
	return b.String()
}

func (r *recording) writeHead(b *strings.Builder) {
	m := r.machine
	fmt.Fprintf(b, "# Benchmarks\n\nWhat the guard costs, beside the same work done by hand. Written by `go run ./bench`, from one run: %s, %d CPUs (%s, %s), "+
		"Go %s, PostgreSQL %s as configured by default (fsync on), pgx %s, connect %s; %d rounds at the base point, %d elsewhere, turns of %d first calls "+
		"(or more, where they are faster) by each of %d callers; %.0f minutes.\n\n",
		r.began.UTC().Format(time.DateOnly), m.CPUs, m.Model, m.System, m.Go, m.PostgreSQL, m.Pgx, m.Connect,
		r.config.rounds, r.config.elsewhere(), r.config.slice, baseCallers, math.Ceil(r.took.Minutes()))
	b.WriteString("Clients, server and database share the machine, and every variant takes its turn in every round. Only ratios within one run " +
		"mean anything: each is taken round by round, and given as the median with the quartiles beside it. Calls go over HTTP/2 without TLS " +
		"and without compression; each caller has a connection of its own. By hand and guarded, a key's row holds the same: the answer as jsonb and in " +
		"protobuf's wire form. Every answer is checked.\n")
}

func (r *recording) writeBars(b *strings.Builder) {
	b.WriteString("\n## Bars\n\n| what | bar | measured | |\n| --- | --- | --- | --- |\n")
	for _, one := range r.bars() {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", one.what, one.bar, one.measured, one.met)
	}
}

// writeVariants writes all that is known of each variant.
func (r *recording) writeVariants(b *strings.Builder, all results) {
	b.WriteString("| variant | what | calls/s | p50 | p99 | allocations | statements | flights | WAL bytes | key row versions (HOT) | charge row versions |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, d := range definitions() {
		s := all.of(atBase, d.name)
		if s == nil {
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %.0f | %s | %s | %s | %s (%s) | %s |\n", d.name, d.about, rateText(s.each(perSecond)),
			timeText(s.percentile(0.50)), timeText(s.percentile(0.99)), spreadOf(s.each(allocs)).Median,
			countText(s.Counts.Statements), countText(s.Counts.Flights), thousands(spreadOf(s.each(wal)).Median),
			countText(s.Counts.KeyVersions), countText(s.Counts.Hot), countText(s.Counts.ChargeVersions))
	}
}

// writeConditions writes the throughput of each variant under each condition, and what it is against the same by hand.
func writeConditions(b *strings.Builder, all results) {
	var labels []string
	for _, s := range all {
		if !slices.Contains(labels, s.Label) {
			labels = append(labels, s.Label)
		}
	}
	fmt.Fprintf(b, "| | %s |\n| --- |%s\n", strings.Join(labels, " | "), strings.Repeat(" ---: |", len(labels)))
	for _, name := range everywhere() {
		if all.of(labels[0], name) == nil {
			continue
		}
		b.WriteString("| `" + name + "`, calls/s")
		for _, label := range labels {
			b.WriteString(" | " + rateText(all.of(label, name).each(perSecond)))
		}
		b.WriteString(" |\n")
	}
	for _, c := range comparisons() {
		if all.of(labels[0], c.variant) == nil || all.of(labels[0], c.against) == nil {
			continue
		}
		b.WriteString("| " + c.title())
		for _, label := range labels {
			b.WriteString(" | " + ratioText(all.ratio(perSecond, label, c.variant, label, c.against)))
		}
		b.WriteString(" |\n")
	}
}

// writeAlone writes what is no variant.
func (r *recording) writeAlone(b *strings.Builder, section func(title, text string, names ...string)) {
	if len(r.inProcess) > 0 {
		section("Without a database", "One caller calls the interceptor on the memory store in its own process; what is given is beyond the bare call.")
		b.WriteString("| call | µs | allocations |\n| --- | ---: | ---: |\n")
		for _, one := range r.inProcess {
			fmt.Fprintf(b, "| %s | %s | %.1f |\n", one.Call, ratioText(one.Extra), one.Allocs.Median)
		}
	}
	if len(r.hot) > 0 {
		section("A hot key", fmt.Sprintf("%d callers send one key at once, and wait. The handler ends when all of them "+
			"wait.", hotCallers))
		b.WriteString("| | runs | statements a caller | flights a caller | answered after the handler, p50 | the last |\n" +
			"| --- | ---: | ---: | ---: | ---: | ---: |\n")
		for _, h := range r.hot {
			fmt.Fprintf(b, "| %s | %d | %.2f | %.2f | %s | %s |\n", h.Mode, h.Runs, h.Statements, h.Flights, timeText(h.P50), timeText(h.Last))
		}
	}
	if len(r.sweeping) > 0 {
		section("Sweeping", fmt.Sprintf("First calls alone, and while expired rows are swept in batches of %s: by a `store.Sweeper` at its full "+
			"speed, which is a third of the time, and by `Sweep` in a loop, one batch right after the other.", thousands(sweepBatch)), "sweeping")
		b.WriteString("| | calls/s alone | beside a sweeper at full speed | rows swept/s | beside batches without rest | rows swept/s |\n" +
			"| --- | ---: | ---: | ---: | ---: | ---: |\n")
		for _, s := range r.sweeping {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", s.Mode, rateText(s.Alone), rateText(s.Beside), rateText(s.Rows),
				rateText(s.Restless), rateText(s.RowsRestless))
		}
	}
}

func ratioText(s spread) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f – %.2f)", s.Median, s.Lower, s.Upper)
}

func rateText(values []float64) string {
	s := spreadOf(values)
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s – %s)", thousands(s.Median), thousands(s.Lower), thousands(s.Upper))
}

func timeText(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// countText leaves out what is no number.
func countText(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// thousands is a whole number with commas.
func thousands(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

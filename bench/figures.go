package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
)

// comparison is a ratio that says what the guard costs.
type comparison struct{ variant, against string }

func (c comparison) title() string { return c.variant + " / " + c.against }

func comparisons() []comparison {
	return []comparison{
		{"transactional", "bare"}, {"transactional", "least-plain"}, {"transactional", "least-pipelined"}, {"leased", "pattern"},
		{"replay-transactional", "select"}, {"replay-elsewhere-transactional", "select"},
		{"replay-leased", "select"}, {"replay-elsewhere-leased", "select"},
	}
}

// figure is a plot, and what it shows.
type figure struct {
	name, title, see string
	draw             func() (*plot.Plot, error)
}

// write writes the report and the plots into a folder.
func (r *recording) write(dir string) error {
	for _, f := range r.figures() {
		p, err := f.draw()
		if err != nil {
			return fmt.Errorf("plot %s: %w", f.name, err)
		}
		p.Title.Text, p.Title.Padding = f.title, titlePadding
		if err := p.Save(plotWidth, plotHeight, filepath.Join(dir, f.name+".svg")); err != nil {
			return fmt.Errorf("plot %s: %w", f.name, err)
		}
	}
	//nolint:gosec // it is for all to read
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(r.markdown(true)), 0o644)
}

// figures are the plots for what was measured.
func (r *recording) figures() []figure {
	all := r.baseFigures()
	if len(r.callers) > 0 {
		var labels []string
		for _, n := range r.config.callers() {
			labels = append(labels, fmt.Sprint(n))
		}
		all = append(all, figure{"callers", "Calls per second, by the number of callers", "To see: " +
			r.callers.over("transactional", "least-plain", labels), func() (*plot.Plot, error) {
			return lines(r.callers, labels, "callers", "calls per second")
		}})
	}
	if len(r.messages) > 0 {
		var labels []string
		for _, size := range messageSizes() {
			labels = append(labels, size.label)
		}
		all = append(all, figure{"messages", "Calls per second, by the size of messages", "To see: " +
			r.messages.over("transactional", "least-plain", labels), func() (*plot.Plot, error) {
			return lines(r.messages, labels, "message", "calls per second")
		}})
	}
	if len(r.rows) > 0 {
		all = append(all, r.rows.change("rows", fmt.Sprintf("Throughput with %s rows, as a part of that with none", thousands(float64(r.config.rows))),
			fullTable, emptyTable))
	}
	if len(r.transport) > 0 {
		all = append(all, r.transport.change("transport", "Throughput through TCP, as a part of that through the Unix socket", loopbackTCP, unixSocket))
	}
	if len(r.sweeping) > 0 {
		all = append(all, r.sweepingFigure())
	}
	return all
}

func (r *recording) baseFigures() []figure {
	if len(r.base) == 0 {
		return nil
	}
	ratio := func(c comparison) string {
		return ratioText(r.base.ratio(perSecond, atBase, c.variant, atBase, c.against))
	}
	latency := func(variant string, p float64) string {
		s := r.base.of(atBase, variant)
		if s == nil {
			return noBar
		}
		return timeText(s.percentile(p))
	}
	return []figure{
		{"throughput", "Calls per second at the base point", "To see: the bar of a guarded variant beside that of the same work by " +
			"hand. `transactional` is to `least-plain` as " + ratio(comparison{"transactional", "least-plain"}) + " to 1, `leased` to `pattern` as " +
			ratio(comparison{"leased", "pattern"}) + ".", func() (*plot.Plot, error) {
			return rates(r.base)
		}},
		{"latency", "p50 and p99 at the base point", fmt.Sprintf("To see: a guarded first call's p99 beside the same by hand, %s (`transactional`) and %s "+
			"(`least-plain`), and a replay's, %s (`replay-leased`).", latency("transactional", 0.99), latency("least-plain", 0.99),
			latency("replay-leased", 0.99)), func() (*plot.Plot, error) {
			return latencies(r.base)
		}},
		{"ratios", "Throughput against the same work by hand, at the base point", "To see: where each box stands beside 1, which is the other variant's own " +
			"throughput. A box is half of the rounds, the line in it their median.", func() (*plot.Plot, error) {
			var all []distribution
			for _, c := range comparisons() {
				all = append(all, distribution{c.title(), ratios(r.base.of(atBase, c.variant).each(perSecond), r.base.of(atBase, c.against).each(perSecond))})
			}
			return boxes(all, "ratio")
		}},
	}
}

// over says what a ratio is under each condition.
func (r results) over(variant, against string, labels []string) string {
	parts := make([]string, len(labels))
	for i, label := range labels {
		parts[i] = fmt.Sprintf("%.2f (%s)", r.ratio(perSecond, label, variant, label, against).Median, label)
	}
	return "how far the line of " + code(variant) + " stays from that of " + code(against) + ". The one divided by the other is " +
		strings.Join(parts, ", ") + "."
}

// change is a plot of what becomes of each variant's throughput under another condition.
func (r results) change(name, title, label, against string) figure {
	var all []distribution
	lowest, which := math.Inf(1), noBar
	for _, variant := range everywhere() {
		rounds := ratios(r.of(label, variant).each(perSecond), r.of(against, variant).each(perSecond))
		all = append(all, distribution{variant, rounds})
		if m := spreadOf(rounds).Median; m < lowest {
			lowest, which = m, variant
		}
	}
	see := fmt.Sprintf("To see: whether a guarded variant's box stands further from 1 than that of the same work by hand. First calls are at "+
		"%s (transactional) and %s (leased); the lowest is %s, at %.2f.",
		ratioText(r.ratio(perSecond, label, "transactional", against, "transactional")),
		ratioText(r.ratio(perSecond, label, "leased", against, "leased")), code(which), lowest)
	return figure{name, title, see, func() (*plot.Plot, error) { return boxes(all, "ratio") }}
}

func (r *recording) sweepingFigure() figure {
	var all []distribution
	var parts []string
	for _, s := range r.sweeping {
		sweeper, restless := ratios(s.Beside, s.Alone), ratios(s.Restless, s.Alone)
		all = append(all, distribution{s.Mode + ", a sweeper", sweeper}, distribution{s.Mode + ", without rest", restless})
		parts = append(parts, fmt.Sprintf("%s calls keep %s of their throughput beside a sweeper at full speed and %s beside batches without rest",
			s.Mode, ratioText(spreadOf(sweeper)), ratioText(spreadOf(restless))))
	}
	return figure{
		"sweeping", "Throughput of first calls beside a sweep, as a part of that alone", "To see: " + strings.Join(parts, "; ") + ".",
		func() (*plot.Plot, error) { return boxes(all, "ratio") },
	}
}

// code is a name in Markdown.
func code(name string) string { return "`" + name + "`" }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

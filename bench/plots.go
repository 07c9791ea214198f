package main

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	plotWidth  = 22 * vg.Centimeter
	plotHeight = 13 * vg.Centimeter
	barWidth   = 8 // points
	roomRight  = 1.05

	titlePadding = 3 * vg.Millimeter
)

// newPlot has names on the vertical axis, the first one at the top.
func newPlot(names []string, xLabel string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = xLabel, " " // which leaves room for long names
	p.X.Min = 0
	p.NominalY(names...)
	p.Add(plotter.NewGrid())
	return p
}

// backwards is for a vertical axis, which counts from the bottom.
func backwards(all results) results {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

func namesOf(all results) []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Variant
	}
	return names
}

// rates is a plot of each variant's calls per second, with the quartiles.
func rates(all results) (*plot.Plot, error) {
	all = backwards(all)
	p := newPlot(namesOf(all), "calls per second, median of the rounds with the quartiles")
	medians := make(plotter.Values, len(all))
	var quartiles struct {
		plotter.XYs
		plotter.XErrors
	}
	for i, s := range all {
		spread := spreadOf(s.each(perSecond))
		medians[i] = spread.Median
		quartiles.XYs = append(quartiles.XYs, plotter.XY{X: spread.Median, Y: float64(i)})
		quartiles.XErrors = append(quartiles.XErrors, struct{ Low, High float64 }{spread.Lower - spread.Median, spread.Upper - spread.Median})
	}
	if err := addBars(p, medians, plotutil.Color(2), 0, ""); err != nil {
		return nil, err
	}
	whiskers, err := plotter.NewXErrorBars(quartiles)
	if err != nil {
		return nil, err
	}
	p.Add(whiskers)
	p.X.Max *= roomRight
	return p, nil
}

// latencies is a plot of each variant's p50 and p99.
func latencies(all results) (*plot.Plot, error) {
	all = backwards(all)
	p := newPlot(namesOf(all), "milliseconds")
	p50s, p99s := make(plotter.Values, len(all)), make(plotter.Values, len(all))
	for i, s := range all {
		p50s[i], p99s[i] = milliseconds(s.percentile(0.50)), milliseconds(s.percentile(0.99))
	}
	if err := addBars(p, p99s, plotutil.Color(0), -barWidth/4, "p99"); err != nil {
		return nil, err
	}
	err := addBars(p, p50s, plotutil.Color(2), barWidth/4, "p50")
	p.X.Max *= 1.15 // for the legend
	return p, err
}

func addBars(p *plot.Plot, values plotter.Values, c color.Color, offset vg.Length, legend string) error {
	b, err := plotter.NewBarChart(values, barWidth)
	if err != nil {
		return err
	}
	b.Horizontal, b.Color, b.Offset = true, c, offset
	b.LineStyle.Width = 0
	p.Add(b)
	if legend != "" {
		p.Legend.Add(legend, b)
		p.Legend.Padding = vg.Points(4)
	}
	return nil
}

// distribution is the values of a plot's box.
type distribution struct {
	name   string
	values []float64
}

// boxes is a plot of distributions, with a line at 1.
func boxes(all []distribution, xLabel string) (*plot.Plot, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(d distribution) bool { return len(d.values) == 0 })
	slices.Reverse(all)
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.name
	}
	p := newPlot(names, xLabel)
	for i, d := range all {
		b, err := plotter.NewBoxPlot(vg.Points(14), float64(i), plotter.Values(d.values))
		if err != nil {
			return nil, err
		}
		b.Horizontal, b.FillColor = true, plotutil.Color(2)
		p.Add(b)
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(all)) - 0.5}})
	if err != nil {
		return nil, err
	}
	one.Color, one.Width = plotutil.Color(0), vg.Points(1.5)
	p.Add(one)
	p.X.Max = roomRight * max(p.X.Max, 1)
	return p, nil
}

// lines is a plot, with a logarithmic axis, of the calls per second of the variants that are measured everywhere, under conditions that stand side by
// side.
func lines(all results, labels []string, xLabel, yLabel string) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.Y.Scale, p.Y.Tick.Marker, p.Y.AutoRescale = plot.LogScale{}, plot.LogTicks{Prec: -1}, true
	p.NominalX(labels...)
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	for i, variant := range everywhere() {
		var points plotter.XYs
		for x, label := range labels {
			if s := all.of(label, variant); s != nil {
				points = append(points, plotter.XY{X: float64(x), Y: spreadOf(s.each(perSecond)).Median})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i/4), vg.Points(1.5)
		dots.Color, dots.Shape = line.Color, draw.CircleGlyph{}
		p.Add(line, dots)
		p.Legend.Add(variant, line, dots)
	}
	p.X.Max *= 1.4 // for the legend
	return p, nil
}

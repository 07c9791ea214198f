package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// slice is one variant's turn in one round.
type slice struct {
	PerSecond float64
	P50, P99  time.Duration
	Allocs    float64 // per call, of clients and server together
	Bytes     float64 // allocated per call, likewise
	WAL       float64 // bytes per call
	latencies []time.Duration
}

// series is what was measured of a variant under one set of conditions.
type series struct {
	Variant, Label string
	Slices         []slice
	Counts         counts
}

// each takes a value of every slice.
func (s *series) each(value func(slice) float64) []float64 {
	if s == nil {
		return nil
	}
	all := make([]float64, len(s.Slices))
	for i, one := range s.Slices {
		all[i] = value(one)
	}
	return all
}

// percentile is over the calls of all rounds.
func (s *series) percentile(p float64) time.Duration {
	var all []time.Duration
	for _, one := range s.Slices {
		all = append(all, one.latencies...)
	}
	slices.Sort(all)
	return percentile(all, p)
}

func perSecond(s slice) float64 { return s.PerSecond }
func p99(s slice) float64       { return s.P99.Seconds() }
func allocs(s slice) float64    { return s.Allocs }
func wal(s slice) float64       { return s.WAL }

// results are the series of a group, in the order of their turns.
type results []*series

// of is nil where there is none.
func (r results) of(label, variant string) *series {
	for _, s := range r {
		if s.Label == label && s.Variant == variant {
			return s
		}
	}
	return nil
}

// ratio compares two series round by round.
func (r results) ratio(value func(slice) float64, label, variant, againstLabel, against string) spread {
	return spreadOf(ratios(r.of(label, variant).each(value), r.of(againstLabel, against).each(value)))
}

// turns are the variants of a group's stages.
type turn struct {
	stage   *stage
	variant *variant
	series  *series
}

// measure has all variants of all stages take their turns, round by round. Each round has an order of its own, so that what
// a turn leaves behind does not always meet the same one; it is the same order in every run.
func measure(ctx context.Context, c config, name string, rounds int, stages []*stage, p *progress) (results, error) {
	var turns []turn
	var all results
	for _, s := range stages {
		variants, err := s.build(ctx, c.only)
		if err != nil {
			return nil, err
		}
		for _, v := range variants {
			p.say("%s: warming %s %s", name, s.label, v.name)
			one := &series{Variant: v.name, Label: s.label}
			if one.Counts, err = warm(ctx, s, v); err != nil {
				return nil, fmt.Errorf("%s %s: %w", s.label, v.name, err)
			}
			turns, all = append(turns, turn{s, v, one}), append(all, one)
		}
	}
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	for round := range rounds {
		order.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		for _, t := range turns {
			p.say("%s: round %d of %d, %s %s", name, round+1, rounds, t.stage.label, t.variant.name)
			one, err := take(ctx, t.stage, t.variant, t.stage.callers, t.stage.calls*t.variant.times)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", t.stage.label, t.variant.name, err)
			}
			t.series.Slices = append(t.series.Slices, one)
		}
	}
	if c.profile == "" {
		return all, nil
	}
	for _, t := range turns {
		p.say("%s: profiling %s %s", name, t.stage.label, t.variant.name)
		if err := profile(ctx, t, rounds, profileFile(c.profile, name, t.stage.label, t.variant.name)); err != nil {
			return nil, fmt.Errorf("profile %s %s: %w", t.stage.label, t.variant.name, err)
		}
	}
	return all, nil
}

const (
	warmCalls    = 64 // of all callers together
	leadIn       = 12 // a turn begins with this part of its calls that is not counted
	countedCalls = 32 // of one caller, so that all go through a connection that is warm
)

// warm has connections prepare their statements, and counts, where the stage is to, what a call sends and writes.
func warm(ctx context.Context, s *stage, v *variant) (c counts, err error) {
	if _, err := take(ctx, s, v, s.callers, min(max(1, warmCalls/s.callers), s.calls)); err != nil || !s.count {
		return c, err
	}
	leave, err := s.enter(ctx, v, warmCalls+countedCalls)
	if err != nil {
		return c, err
	}
	if _, err := calls(ctx, v, 1, warmCalls); err != nil {
		return c, err
	}
	c, err = s.counts(ctx, countedCalls, func() error {
		_, err := calls(ctx, v, 1, countedCalls)
		return err
	})
	return c, errors.Join(err, leave())
}

func (s *stage) enter(ctx context.Context, v *variant, calls int) (leave func() error, err error) {
	if v.enter == nil {
		return func() error { return nil }, nil
	}
	return v.enter(ctx, calls)
}

// take is one turn.
func take(ctx context.Context, s *stage, v *variant, callers, each int) (one slice, err error) {
	uncounted := max(1, each/leadIn) // for connections and caches that were idle meanwhile
	leave, err := s.enter(ctx, v, callers*(uncounted+each))
	if err != nil {
		return one, err
	}
	if _, err := calls(ctx, v, callers, uncounted); err != nil {
		return one, err
	}
	walBefore, err := s.wal(ctx)
	if err != nil {
		return one, err
	}
	runtime.GC() // so that no turn pays for the one before
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	one.latencies, err = calls(ctx, v, callers, each)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if err != nil {
		return one, err
	}
	walAfter, err := s.wal(ctx)
	if err != nil {
		return one, err
	}
	n := float64(callers * each)
	one.PerSecond = n / took.Seconds()
	one.Allocs, one.Bytes = float64(after.Mallocs-before.Mallocs)/n, float64(after.TotalAlloc-before.TotalAlloc)/n
	one.WAL = (walAfter - walBefore) / n
	sorted := slices.Sorted(slices.Values(one.latencies))
	one.P50, one.P99 = percentile(sorted, 0.50), percentile(sorted, 0.99)
	return one, leave()
}

// calls has callers make their calls, each one after the other, and returns how long each took. It ends at the first
// that fails.
func calls(ctx context.Context, v *variant, callers, each int) ([]time.Duration, error) {
	latencies := make([]time.Duration, callers*each)
	running, ctx := errgroup.WithContext(ctx)
	for caller := range callers {
		mine := latencies[caller*each : (caller+1)*each]
		running.Go(func() error {
			for i := range mine {
				start := time.Now()
				if err := v.call(ctx, caller); err != nil {
					return err
				}
				mine[i] = time.Since(start)
			}
			return nil
		})
	}
	return latencies, running.Wait()
}

package main

import (
	"math"
	"slices"
	"time"
)

// spread is a median with the quartiles on both sides of it. The zero value says that nothing was measured.
type spread struct {
	Median, Lower, Upper float64
	N                    int
}

// spreadOf leaves out what is no number.
func spreadOf(values []float64) spread {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	return spread{Median: quantile(sorted, 0.5), Lower: quantile(sorted, 0.25), Upper: quantile(sorted, 0.75), N: len(sorted)}
}

// quantile interpolates between the two values next to q's place. It is NaN where there are no values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	place := q * float64(len(sorted)-1)
	below, fraction := math.Modf(place)
	i := int(below)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + fraction*(sorted[i+1]-sorted[i])
}

// percentile is the smallest duration that p of all, 0 to 1, do not exceed (nearest rank), and zero where there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// ratios divides round by round; rounds that one of the two lacks are left out.
func ratios(of, against []float64) []float64 {
	r := make([]float64, min(len(of), len(against)))
	for i := range r {
		r[i] = of[i] / against[i]
	}
	return r
}

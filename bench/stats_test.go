package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestSpreadOf(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   spread
	}{
		"one":                   {[]float64{3}, spread{Median: 3, Lower: 3, Upper: 3, N: 1}},
		"two":                   {[]float64{4, 2}, spread{Median: 3, Lower: 2.5, Upper: 3.5, N: 2}},
		"an odd number":         {[]float64{5, 1, 2, 4, 3}, spread{Median: 3, Lower: 2, Upper: 4, N: 5}},
		"an even number":        {[]float64{1, 2, 3, 4}, spread{Median: 2.5, Lower: 1.75, Upper: 3.25, N: 4}},
		"one that is no number": {[]float64{math.NaN(), 7}, spread{Median: 7, Lower: 7, Upper: 7, N: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.values)
			if got := spreadOf(test.values); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if !slices.EqualFunc(test.values, before, func(a, b float64) bool { return a == b || a != a && b != b }) {
				t.Errorf("the values became %v", test.values)
			}
		})
	}
}

func TestSpreadOfNothing(t *testing.T) {
	if got := spreadOf(nil); got.N != 0 || !math.IsNaN(got.Median) {
		t.Errorf("got %+v, want no number", got)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for name, test := range map[string]struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		"none":                     {nil, 0.5, 0},
		"one":                      {[]time.Duration{7}, 0.99, 7},
		"the half of a hundred":    {hundred, 0.50, 50},
		"the 99th of a hundred":    {hundred, 0.99, 99},
		"the 99th of three":        {[]time.Duration{1, 2, 9}, 0.99, 9},
		"the first, where p is 0":  {hundred, 0, 1},
		"the last, where p is one": {hundred, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(test.sorted, test.p); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestRatios(t *testing.T) {
	if got, want := ratios([]float64{1, 6, 5}, []float64{2, 3}), []float64{0.5, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

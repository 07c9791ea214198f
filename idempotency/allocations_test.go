package idempotency_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/race"
)

// The guard makes no more than so many allocations for a charge, the memory store's among them. Whoever saves one lowers its
// number here.
func TestAllocations(t *testing.T) {
	g := benchGuard(t)
	reply := created("ch_1")
	run := func(context.Context) idempotency.Reply { return reply }
	c := charge("", 1299)
	keys := make([]string, 201) // AllocsPerRun warms up once
	for i := range keys {
		keys[i] = "key-" + strconv.Itoa(i)
	}
	for _, test := range []struct {
		name     string
		keys     []string
		replayed bool
		most     float64
	}{
		{"first call", keys, false, 27},
		{"replay", keys, true, 13},
		{"no key", nil, false, 0},
	} {
		if race.Enabled && test.most > 0 {
			test.most += 2
		}
		calls := 0
		n := testing.AllocsPerRun(len(keys)-1, func() {
			c.Keys = test.keys
			if len(test.keys) > 0 {
				c.Keys = test.keys[calls : calls+1]
			}
			calls++
			if _, replayed, err := g.Do(t.Context(), c, run); err != nil || replayed != test.replayed {
				t.Fatalf("%s: replayed = %v, %v", test.name, replayed, err)
			}
		})
		if n > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, n, test.most)
		}
	}
}

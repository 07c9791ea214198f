package check

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchLimit bounds the search for an order of one key's calls.
const searchLimit = 20 * time.Second

// linearizable checks that there is, for each key, an order of its calls in which every result is right and which keeps to
// the order in which calls came after each other.
func (c *checker) linearizable() {
	work := make(chan string)
	var mu sync.Mutex
	var searching sync.WaitGroup
	m := model(c.in.Transactional)
	for range runtime.GOMAXPROCS(0) {
		searching.Go(func() {
			for key := range work {
				result := porcupine.CheckOperationsTimeout(m, c.history.operations(key, c.in.Transactional), searchLimit)
				mu.Lock()
				c.linearized(key, result)
				mu.Unlock()
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(c.history.calls)) {
		work <- key
	}
	close(work)
	searching.Wait()
}

func (c *checker) linearized(key string, result porcupine.CheckResult) {
	switch result {
	case porcupine.Ok:
		c.report.Linearizable++
	case porcupine.Illegal:
		c.violation(key, "its history is not linearizable: no order of its calls explains their results")
	default:
		c.violation(key, fmt.Sprintf("whether its history is linearizable was not found out within %v", searchLimit))
	}
}

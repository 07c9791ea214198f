// Package storetest is the conformance suite of package store. Run it on a store of your own:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Config{
//			New: func(t *testing.T) store.Store { return mystore.New(emptyDatabase(t)) },
//		})
//	}
//
// Each subtest is named for one behaviour, under the method it belongs to. A subtest that does not apply to the store,
// or that needs a field of [Config] that is not set, is not run and not listed.
//
// The suite waits for leases and lives of a few milliseconds to end by asking the store, so the store needs no clock that
// can be set; it must keep time at least to the millisecond. No assertion depends on the machine being fast, but a store
// that hangs, or whose time stands still, fails only after [Config.Patience].
package storetest

import (
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Config says what the suite runs on. New is required, all else optional.
type Config struct {
	// New returns an empty store, for one subtest. It fails t where it cannot, and uses t.Cleanup to close the store:
	// attempts are settled by then. The store must be able to hold two attempts at the same time, beside one other
	// call: three connections, for a transactional one. It must serve 64 calls that come at once, though not in parallel.
	New func(t *testing.T) store.Store

	// Pair returns two empty stores that share their rows, as two processes do. Nil leaves out the group Shared.
	Pair func(t *testing.T) (a, b store.Store)

	// Leased returns a leased store on the rows of s, a transactional store that New or Pair returned. With it, a
	// transactional store is tested on claims that another mode left: their leases, take-over and late attempts. It
	// is not called for a leased store. Nil leaves these subtests out.
	Leased func(t *testing.T, s store.Store) store.Store

	// Effects returns how a handler writes in the attempts of s, a transactional store that New returned, so that what
	// becomes of a handler's own writes is tested. It is not called for a leased store. Nil leaves out the group Effects.
	Effects func(t *testing.T, s store.Store) Effects

	// Patience is how long one call, or the wait for one lease to end, may take before it counts as a failure. Zero
	// means 10 seconds.
	Patience time.Duration
}

// Run runs the suite. Subtests run one after the other.
//
// It calls c.New once more than there are subtests that use it, to learn whether the store is transactional.
func Run(t *testing.T, c Config) {
	t.Helper()
	if c.New == nil {
		t.Fatal("storetest: Config.New is not set")
	}
	given := c.given(c.New(t))
	for _, g := range groups() {
		tests := g.applicable(given)
		if len(tests) == 0 {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, test := range tests {
				t.Run(test.name, func(t *testing.T) { test.run(t, newRig(t, c, test.needs)) })
			}
		})
	}
}

// needs says what a subtest cannot do without.
type needs uint8

const (
	leasedStore        needs = 1 << iota // the store under test is leased
	transactionalStore                   // the store under test is transactional
	leasedRows                           // claims in progress that can be seen: the store's own, or Config.Leased
	twoStores                            // Config.Pair
	handlerWrites                        // Config.Effects
	drainer                              // the store is a store.Drainer

	anyStore needs = 0
)

// given returns what c and s, a store that c.New made, have of what subtests need.
func (c Config) given(s store.Store) needs {
	var n needs
	if s.Transactional() {
		n = transactionalStore
		if c.Effects != nil {
			n |= handlerWrites
		}
		if c.Leased != nil {
			n |= leasedRows
		}
	} else {
		n = leasedStore | leasedRows
	}
	if c.Pair != nil {
		n |= twoStores
	}
	if _, ok := s.(store.Drainer); ok {
		n |= drainer
	}
	return n
}

type subtest struct {
	name  string
	needs needs
	run   func(t *testing.T, r rig)
}

type group struct {
	name  string
	tests []subtest
}

func (g group) applicable(given needs) []subtest {
	var tests []subtest
	for _, test := range g.tests {
		if test.needs&^given == 0 {
			tests = append(tests, test)
		}
	}
	return tests
}

func groups() []group {
	return []group{
		{"Mode", modeTests()},
		{"Claim", claimTests()},
		{"ID", idTests()},
		{"TakeOver", append(takeOverTests(), refusedTests()...)},
		{"Late", lateTests()},
		{"Attempt", attemptTests()},
		{"Complete", completeTests()},
		{"Record", recordTests()},
		{"Release", releaseTests()},
		{"Look", lookTests()},
		{"Forget", forgetTests()},
		{"Sweep", sweepTests()},
		{"Renew", renewTests()},
		{"Drain", drainTests()},
		{"Effects", effectsTests()},
		{"Shared", sharedTests()},
	}
}

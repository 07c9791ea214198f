// Package fault is what the kit does to a rig.
package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// Kinds of faults.
const (
	KillServer    Kind = "kill-server"    // SIGKILL; another process takes its place
	KillDatabase  Kind = "kill-database"  // SIGKILL; started again at once
	Outage        Kind = "outage"         // the same, but away for longer than a lease
	Terminate     Kind = "terminate"      // the database ends all its connections
	Cut           Kind = "cut"            // a server's connections are closed
	CutNext       Kind = "cut-next"       // each as soon as it carries something: mid-message, or before the answer
	Stall         Kind = "stall"          // a server's connections carry nothing, and all of it later
	PauseServer   Kind = "pause-server"   // SIGSTOP past the lease, then SIGCONT
	ExhaustedPool Kind = "exhausted-pool" // a server's pool is at its limit
	WrongClock    Kind = "clock"          // a server's clock is wrong by ten minutes
)

// Kinds are all kinds.
func Kinds() []Kind {
	return []Kind{KillServer, KillDatabase, Outage, Terminate, Cut, CutNext, Stall, PauseServer, ExhaustedPool, WrongClock}
}

// ParseKinds reads a list with commas.
func ParseKinds(text string) ([]Kind, error) {
	var kinds []Kind
	for name := range strings.SplitSeq(text, ",") {
		kind := Kind(strings.TrimSpace(name))
		if !slices.Contains(Kinds(), kind) {
			return nil, fmt.Errorf("there is no fault %q", kind)
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// Fault is one fault.
type Fault struct {
	Kind    Kind
	Slot    int // of the server that it is done to
	Length  time.Duration
	Variant int // of two
}

// Plan makes faults, one after the other; the same ones in the same order for a seed, kinds, number of servers and lease.
type Plan struct {
	random  *rand.Rand
	kinds   []Kind
	servers int
	lease   time.Duration
	bags    int
	bag     []Kind // still to be drawn before a kind comes again
}

// outageEvery is how many bags there are to one with an outage, in which the other faults meet nobody at work.
const outageEvery = 3

// NewPlan makes a plan of at least one kind.
func NewPlan(seed uint64, kinds []Kind, servers int, lease time.Duration) *Plan {
	return &Plan{random: rand.New(rand.NewPCG(seed, 0)), kinds: kinds, servers: servers, lease: lease}
}

// Next returns the next fault.
func (p *Plan) Next() Fault {
	if len(p.bag) == 0 {
		p.bag = p.newBag()
		p.random.Shuffle(len(p.bag), func(i, j int) { p.bag[i], p.bag[j] = p.bag[j], p.bag[i] })
	}
	f := Fault{Kind: p.bag[0], Slot: p.random.IntN(p.servers), Variant: p.random.IntN(2)}
	p.bag = p.bag[1:]
	f.Length = p.length(f.Kind, p.random.Float64())
	return f
}

func (p *Plan) newBag() []Kind {
	p.bags++
	if p.bags%outageEvery == 1 || len(p.kinds) == 1 {
		return slices.Clone(p.kinds)
	}
	return slices.DeleteFunc(slices.Clone(p.kinds), func(k Kind) bool { return k == Outage })
}

// length is how long a fault of a kind lasts; share is 0 to 1.
func (p *Plan) length(kind Kind, share float64) time.Duration {
	var least, most time.Duration
	switch kind {
	case KillServer:
		most = 500 * time.Millisecond
	case Outage, PauseServer:
		least, most = p.lease*11/10, p.lease*2
	case Stall:
		least, most = p.lease/2, p.lease*5/2
	case Cut:
		most = 300 * time.Millisecond
	case CutNext:
		least, most = 500*time.Millisecond, 1500*time.Millisecond
	case ExhaustedPool:
		least, most = p.lease/2, p.lease*3/2
	case WrongClock:
		least, most = p.lease, 5*p.lease
	case KillDatabase, Terminate:
	}
	return least + time.Duration(share*float64(most-least))
}

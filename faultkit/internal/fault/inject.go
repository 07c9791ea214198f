package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
)

const (
	interval   = time.Second
	clockError = 10 * time.Minute
)

// Injector does faults to a rig.
type Injector struct {
	rig *rig.Rig

	mu     sync.Mutex
	counts map[Kind]int
	errs   []error
}

// NewInjector makes an injector.
func NewInjector(r *rig.Rig) *Injector { return &Injector{rig: r, counts: make(map[Kind]int)} }

// Run does one fault of the plan every second until ctx ends, whether those before have ended or not. It returns when all
// have, so that nothing is the matter any more, with what went wrong in doing them.
func (i *Injector) Run(ctx context.Context, p *Plan) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var running sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			f := p.Next()
			running.Go(func() { i.do(context.WithoutCancel(ctx), f) })
		}
	}
	running.Wait()
	return errors.Join(i.errs...)
}

// Counts returns how many faults of each kind have been done.
func (i *Injector) Counts() map[Kind]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.counts)
}

func (i *Injector) do(ctx context.Context, f Fault) {
	done, err := i.inject(ctx, f)
	i.mu.Lock()
	defer i.mu.Unlock()
	if done {
		i.counts[f.Kind]++
	}
	if err != nil {
		i.errs = append(i.errs, fmt.Errorf("fault %s on server %d: %w", f.Kind, f.Slot, err))
	}
}

// inject does a fault, and reports whether it could be seen to be done.
func (i *Injector) inject(ctx context.Context, f Fault) (done bool, err error) {
	s := i.rig.Servers[f.Slot]
	switch f.Kind {
	case KillServer:
		err = s.Kill(ctx, f.Length)
	case KillDatabase, Outage:
		err = i.rig.Database.Crash(ctx, f.Length)
	case Terminate:
		err = i.rig.Database.Terminate(ctx)
	case Cut:
		err = s.Cut(f.Length)
	case CutNext:
		err = i.cutNext(ctx, s, f)
	case Stall:
		err = i.stall(ctx, s, f)
	case PauseServer:
		err = s.Pause(f.Length)
	case ExhaustedPool:
		return s.ExhaustPool(ctx, f.Length)
	case WrongClock:
		by := clockError
		if f.Variant == 1 {
			by = -by
		}
		return s.WrongClock(ctx, by, f.Length)
	default:
		err = errors.New("no such kind")
	}
	return true, err
}

// cutNext cuts before the answer, or in the middle of what is sent.
func (i *Injector) cutNext(ctx context.Context, s *rig.Server, f Fault) error {
	if f.Variant == 0 {
		return s.CutNext(ctx, rig.FromDatabase, 0, f.Length)
	}
	return s.CutNext(ctx, rig.ToDatabase, int(f.Length.Milliseconds()), f.Length)
}

// stall holds back what is sent, or what is answered.
func (i *Injector) stall(ctx context.Context, s *rig.Server, f Fault) error {
	if f.Variant == 0 {
		return s.Stall(ctx, rig.FromDatabase, f.Length)
	}
	return s.Stall(ctx, rig.ToDatabase, f.Length)
}

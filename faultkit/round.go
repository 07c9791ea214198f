package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/check"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/fault"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/load"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

const (
	// answerLimit is how long after the last fault every client must have its answer, beside some leases.
	answerLimit = 20 * time.Second
	// restLimit is how long a call that its client has left may still run when all clients have theirs, beside some leases.
	restLimit = 10 * time.Second
	// repeated is how many answered keys are asked for again at the end.
	repeated      = 300
	progressEvery = 5 * time.Second
)

// round is a world in one mode, harmed and checked.
type round struct {
	config

	mode    mode
	seed    uint64
	length  time.Duration
	program string
	dir     string
	out     io.Writer
}

// result is what came of a round.
type result struct {
	report  check.Report
	faults  map[fault.Kind]int
	settled time.Duration // from the end of the faults to the last answer
}

func (r result) violated() bool { return len(r.report.Violations) > 0 }

func (r *round) run(ctx context.Context) (found result, err error) {
	world, err := rig.Start(ctx, rig.Config{
		Dir: r.dir, Program: r.program, Transactional: r.mode == transactional, Servers: r.servers,
		Bouncer: r.bouncer, Lease: r.lease, Seed: r.seed, Break: r.breaks,
	})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, world.Close(context.WithoutCancel(ctx))) }()
	if err := r.printHead(world); err != nil {
		return found, err
	}
	clients, injector := load.New(fmt.Sprintf("%s-%d", r.mode, r.seed), r.lease, addrs(world)), fault.NewInjector(world)
	begin := time.Now()
	if found.settled, err = r.harm(ctx, clients, injector); err != nil {
		return found, err
	}
	in, err := r.settle(ctx, world, clients)
	if err != nil {
		return found, err
	}
	found.faults = injector.Counts()
	if found.report, err = check.Check(in); err != nil {
		return found, err
	}
	return found, r.printReport(in, found, clients, time.Since(begin))
}

func addrs(world *rig.Rig) []func() string {
	all := make([]func() string, len(world.Servers))
	for i, s := range world.Servers {
		all[i] = s.Addr
	}
	return all
}

// harm lets clients work, and does harm as long as the round lasts; it returns once every client has ended, and how long
// they took for it.
func (r *round) harm(ctx context.Context, clients *load.Load, injector *fault.Injector) (settled time.Duration, err error) {
	harming, end := context.WithTimeout(ctx, r.length)
	defer end()
	calling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	clients.Start(harming, calling, r.clients)
	stopProgress := r.progress(clients, injector)
	defer stopProgress()
	err = injector.Run(harming, fault.NewPlan(r.seed, r.kinds, r.servers, r.lease))
	// From here on nothing is the matter any more.
	over := time.Now()
	patience := time.AfterFunc(answerLimit+4*r.lease, giveUp)
	defer patience.Stop()
	clients.Wait()
	return time.Since(over), errors.Join(err, context.Cause(ctx))
}

// progress prints a line every few seconds, until the function that it returns is called.
func (r *round) progress(clients *load.Load, injector *fault.Injector) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			fmt.Fprintf(r.out, "%6s  %d calls, %d answers, %d of them replays, %d faults\n", //nolint:errcheck // a line the less
				time.Since(begin).Round(time.Second), clients.Calls(), clients.Answers(), clients.Replays(), total(injector.Counts()))
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// settle sees to it that every key comes to its end, ends the servers, and gathers what there is to check.
func (r *round) settle(ctx context.Context, world *rig.Rig, clients *load.Load) (in check.Input, err error) {
	in = check.Input{Transactional: r.mode == transactional}
	// A key whose completion was lost, after its client was answered, is in progress until somebody comes with it again.
	stuck, err := world.InProgress(ctx)
	if err != nil {
		return in, err
	}
	repeating, giveUp := context.WithTimeout(ctx, answerLimit+4*r.lease)
	defer giveUp()
	in.Clients = clients.Repeat(repeating, r.clients, append(stuck, someAnswered(clients)...))
	held, err := r.awaitRest(ctx, world)
	if err != nil {
		return in, err
	}
	if in.End, err = world.StopServers(ctx); err != nil {
		return in, err
	}
	if r.breaks != target.BreakNothing && in.End.Rewritten == 0 {
		return in, fmt.Errorf("-break %s changed no statement: the library's SQL is not what the kit takes it for", r.breaks)
	}
	if in.Final, err = world.Final(ctx); err != nil {
		return in, err
	}
	in.Final.Left = append(held, in.Final.Left...)
	in.Journals, in.Captured = world.Journals(), world.Captured()
	return in, nil
}

// awaitRest waits until calls that their clients have left have ended, and returns what is held all the same.
func (r *round) awaitRest(ctx context.Context, world *rig.Rig) (held []string, err error) {
	for deadline := time.Now().Add(restLimit + 2*r.lease); ; {
		held, err = world.AtRest(ctx)
		if err != nil || len(held) == 0 || time.Now().After(deadline) {
			return held, err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// someAnswered are keys that must be replayed.
func someAnswered(clients *load.Load) []string {
	keys := slices.Collect(maps.Keys(clients.Wait().Answers))
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys[:min(len(keys), repeated)]
}

package idempotency

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// wait has a call that met its key in progress wait for the first call to end, if its policy says so, and tries the claim
// again when the key seems free. It returns as claim does: a reply that was found, a claim that was won, or, when the
// time is over or too many wait already, what stands in the way.
func (g *Guard) wait(ctx context.Context, k *keyed, found store.Found) (store.Found, store.Attempt, error) {
	if k.policy.Wait <= 0 {
		return found, nil, nil
	}
	timeout := time.NewTimer(k.policy.Wait)
	defer timeout.Stop()
	for g.mayWait(k, found) {
		w := g.room.enter(k.id)
		if w == nil {
			return found, nil, nil
		}
		select {
		case <-timeout.C:
			g.room.leave(w)
			return found, nil, nil
		case <-ctx.Done():
			g.room.leave(w)
			return found, nil, callError(ctx, context.Cause(ctx))
		case found = <-w.told:
		}
		if found.State == store.Absent || found.Expired || found.LeaseOver() {
			var attempt store.Attempt
			var err error
			if found, attempt, err = g.claim(ctx, k); err != nil || attempt != nil {
				return found, attempt, err
			}
		}
	}
	return found, nil, nil
}

// mayWait reports whether the key is held, by the same request as far as that can be seen.
func (g *Guard) mayWait(k *keyed, found store.Found) bool {
	return found.OutOfSight() ||
		found.State == store.InProgress && !found.Expired && !found.LeaseOver() && g.sameRequest(k, found.RequestHash)
}

const (
	// Between two looks of the poller: quick at first, since most calls are short, then slower and slower.
	quickestPace = 20 * time.Millisecond
	slowestPace  = 500 * time.Millisecond
	// lookTimeout bounds one look.
	lookTimeout = 5 * time.Second
)

// waitRoom is where a process's calls wait for their keys. However many wait, one poller looks for them all, in one query,
// and none holds a connection.
type waitRoom struct {
	guard *Guard
	limit int

	mu      sync.Mutex
	keys    map[store.ID][]*waiter // in the order of their coming
	waiting int
	polling bool
	soon    chan struct{} // asks the poller to look at once
	fresh   chan struct{} // tells it of a key that it has not looked for
}

type waiter struct {
	id   store.ID
	told chan store.Found // of what became of the key; room for one
}

func newWaitRoom(g *Guard, limit int) *waitRoom {
	return &waitRoom{guard: g, limit: limit, keys: make(map[store.ID][]*waiter), soon: make(chan struct{}, 1), fresh: make(chan struct{}, 1)}
}

// enter returns nil where the room is full.
func (r *waitRoom) enter(id store.ID) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting >= r.limit {
		return nil
	}
	w := &waiter{id: id, told: make(chan store.Found, 1)}
	if len(r.keys[id]) == 0 {
		signal(r.fresh)
	}
	r.keys[id] = append(r.keys[id], w)
	r.waiting++
	if !r.polling {
		r.polling = true
		r.guard.behind.Go(r.poll)
	}
	return w
}

// leave is for a waiter that gives up. Where it was told at this moment that the key is free, the next look tells another.
func (r *waitRoom) leave(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.keys[w.id] {
		if other == w {
			r.remove(w.id, i, i+1)
			return
		}
	}
}

// remove takes waiters of a key out of the room.
func (r *waitRoom) remove(id store.ID, from, to int) {
	r.waiting -= to - from
	if rest := slices.Delete(r.keys[id], from, to); len(rest) > 0 {
		r.keys[id] = rest
	} else {
		delete(r.keys, id)
	}
	if r.waiting == 0 {
		signal(r.soon) // it ends then
	}
}

// settled says that an attempt of this process has settled a key: whoever waits for it need not wait for the next look.
func (r *waitRoom) settled(id store.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys[id]) > 0 {
		signal(r.soon)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been said
	}
}

// poll looks for all who wait, until nobody does.
func (r *waitRoom) poll() {
	pace := quickestPace
	for {
		ids, more := r.awaited()
		if !more {
			return
		}
		for batch := range slices.Chunk(ids, store.MaxLook) {
			r.look(batch)
		}
		pace = r.pause(pace)
	}
}

// pause waits for the next look, and returns how long to wait for the one after it.
func (r *waitRoom) pause(pace time.Duration) time.Duration {
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return min(pace*3/2, slowestPace)
		case <-r.soon:
			return quickestPace
		case <-r.fresh: // its own claim has just looked; many that come together are looked for together
			if pace > quickestPace {
				pace = quickestPace
				timer.Reset(pace)
			}
		}
	}
}

// awaited returns the keys that are waited for, and false where there are none: the poller ends then.
func (r *waitRoom) awaited() ([]store.ID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]store.ID, 0, len(r.keys))
	for id := range r.keys {
		ids = append(ids, id)
	}
	r.polling = len(ids) > 0
	return ids, r.polling
}

// look tells what became of keys: of a reply, all who wait for it; of a key that seems free, the one who has waited
// longest. The others wait on, for what that one's call will end in.
func (r *waitRoom) look(ids []store.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	all, err := r.guard.store.Look(ctx, ids)
	if err != nil {
		r.guard.logger.LogAttrs(ctx, slog.LevelWarn, "idempotency: awaited keys could not be looked up; trying again",
			slog.Int("keys", len(ids)), slog.Any("error", err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range all {
		tell := len(r.keys[found.ID])
		switch {
		case found.State == store.Absent || found.Expired || found.LeaseOver():
			tell = min(tell, 1)
		case found.State == store.InProgress:
			tell = 0
		}
		if tell == 0 {
			continue
		}
		for _, w := range r.keys[found.ID][:tell] {
			w.told <- found
		}
		r.remove(found.ID, 0, tell)
	}
}

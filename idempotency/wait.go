package idempotency

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// claimOrWait tries to win the key, as claim does. Where the call's policy says so, it has a call that meets its key in
// progress wait for the first call to end, and tries again when the key seems free. A call whose key is claimed, run or
// waited for by the same request of this process waits with that one, and sends nothing of its own.
func (g *Guard) claimOrWait(ctx context.Context, k *keyed) (store.Attempt, error) {
	if k.policy.Wait <= 0 {
		return g.claim(ctx, k)
	}
	w := g.room.arrive(k)
	if w == nil {
		if attempt, err := g.claim(ctx, k); err != nil || attempt != nil || !g.mayWait(k) {
			return attempt, err
		}
		if w = g.room.enter(k); w == nil {
			return nil, nil
		}
	}
	return g.wait(ctx, k, w)
}

// wait has a call wait that is in the room. It returns as claim does.
func (g *Guard) wait(ctx context.Context, k *keyed, w *waiter) (store.Attempt, error) {
	g.observe(ctx, k, Event{Outcome: Waiting})
	timeout := time.NewTimer(k.policy.Wait)
	defer timeout.Stop()
	for w != nil {
		select {
		case <-timeout.C:
			g.room.leave(w)
			return nil, nil
		case <-ctx.Done():
			g.room.leave(w)
			return nil, callError(ctx, context.Cause(ctx))
		case k.found = <-w.told:
		}
		if free(k.found) {
			if attempt, err := g.try(ctx, k); err != nil || attempt != nil {
				return attempt, err
			}
		}
		if !g.mayWait(k) {
			break
		}
		w = g.room.enter(k)
	}
	return nil, nil
}

// try claims a key that seems free, for the one who was told so. However that ends, the others may be told from then on.
func (g *Guard) try(ctx context.Context, k *keyed) (store.Attempt, error) {
	defer g.room.tried(k.id)
	return g.claim(ctx, k)
}

// mayWait reports whether the key is held, by the same request as far as that can be seen.
func (g *Guard) mayWait(k *keyed) bool {
	found := &k.found
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
	present map[request]int        // calls that claim, run or wait, where their policy is to wait
	keys    map[store.ID][]*waiter // in the order of their coming
	trying  map[store.ID]bool      // keys that one who waited was told are free, and has not tried to claim yet
	waiting int
	polling bool
	soon    chan struct{} // asks the poller to look at once
	fresh   chan struct{} // tells it of a key that it has not looked for
}

// request is a key with what it is used for.
type request struct {
	id          store.ID
	fingerprint string
}

type waiter struct {
	id   store.ID
	told chan store.Found // of what became of the key; room for one
	// unseen: the call has not looked at the key's row itself, and is to see whether it is its own request's.
	unseen bool
}

func newWaitRoom(g *Guard, limit int) *waitRoom {
	return &waitRoom{
		guard: g, limit: limit, present: make(map[request]int), keys: make(map[store.ID][]*waiter),
		trying: make(map[store.ID]bool), soon: make(chan struct{}, 1), fresh: make(chan struct{}, 1),
	}
}

// arrive makes a call known until it departs. Where the same request is here already, the call waits with it; else, and
// where the room is full, it is to claim the key, and arrive returns nil.
func (r *waitRoom) arrive(k *keyed) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := request{k.id, k.fingerprint}
	r.present[same]++
	if r.present[same] == 1 {
		return nil
	}
	return r.add(&waiter{id: k.id, told: make(chan store.Found, 1), unseen: true})
}

// depart ends what arrive began. Whoever waits for the key need not wait for the next look.
func (r *waitRoom) depart(k *keyed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := request{k.id, k.fingerprint}
	if r.present[same]--; r.present[same] == 0 {
		delete(r.present, same)
	}
	if len(r.keys[k.id]) > 0 {
		signal(r.soon)
	}
}

// enter has a call wait that has seen its key in progress. It returns nil where the room is full.
func (r *waitRoom) enter(k *keyed) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(&waiter{id: k.id, told: make(chan store.Found, 1)})
}

func (r *waitRoom) add(w *waiter) *waiter {
	if r.waiting >= r.limit {
		return nil
	}
	if len(r.keys[w.id]) == 0 {
		signal(r.fresh)
	}
	r.keys[w.id] = append(r.keys[w.id], w)
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
	if i := slices.Index(r.keys[w.id], w); i >= 0 {
		r.put(w.id, slices.Delete(r.keys[w.id], i, i+1), 1)
	} else if found := <-w.told; free(found) {
		delete(r.trying, w.id)
	}
}

// tried says that the one who was told that a key is free has tried to claim it.
func (r *waitRoom) tried(id store.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trying, id)
}

// free reports whether a key seems to be there to be claimed.
func free(f store.Found) bool { return f.State == store.Absent || f.Expired || f.LeaseOver() }

// put leaves the rest of those who wait for a key in the room, when some have gone.
func (r *waitRoom) put(id store.ID, rest []*waiter, gone int) {
	if len(rest) > 0 {
		r.keys[id] = rest
	} else {
		delete(r.keys, id)
	}
	if r.waiting -= gone; r.waiting == 0 {
		signal(r.soon) // the poller ends then
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
		case <-r.fresh: // it has just been claimed, or is about to be; many that come together are looked for together
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

// look tells what became of keys.
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
		r.tell(found)
	}
}

// tell says what became of a key: of a reply, to all who wait for it; of a key that seems free, to the one who has waited
// longest, while the others wait on for what that one's call will end in; of one in progress, to those who have not seen it.
func (r *waitRoom) tell(found store.Found) {
	told := 0
	rest := slices.DeleteFunc(r.keys[found.ID], func(w *waiter) bool {
		switch {
		case free(found):
			if r.trying[found.ID] {
				return false
			}
			r.trying[found.ID] = true
		case found.State == store.InProgress && (!w.unseen || found.OutOfSight()):
			return false
		}
		w.told <- found
		told++
		return true
	})
	r.put(found.ID, rest, told)
}

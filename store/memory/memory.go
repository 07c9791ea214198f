// Package memory is a leased store that keeps its rows in the process's own memory.
//
// Nothing survives the process, and no other process sees the rows: after a restart every key is absent, and a retry
// runs again. It is for tests, demos and servers that are a single process and may forget. Where a key guards money, use
// store/postgres.
//
// The store deletes nothing by itself, so it grows until [Store.Sweep] is called. Memory that the rows took is used
// again by later rows, but the map that holds them does not shrink.
package memory

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

var (
	_ store.Store   = (*Store)(nil)
	_ store.Renewer = (*Store)(nil)
)

// Store is a leased [store.Store] and a [store.Renewer] in memory. Make one with [New]. All its methods, but not those of
// one attempt, are safe for concurrent use.
//
// Its methods fail where their context has ended before they begin, with the context's error, and where they are called
// outside the limits of the contract. An attempt's Complete and Release heed no context.
type Store struct {
	mu   sync.Mutex
	rows map[store.ID]*row
	ends byEnd // the same rows
}

// New returns an empty store.
func New() *Store {
	return &Store{rows: make(map[store.ID]*row)}
}

// Transactional returns false: attempts are leased.
func (s *Store) Transactional() bool { return false }

// Claim implements [store.Store]. It never reports a key out of sight.
func (s *Store) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return store.Found{}, nil, fmt.Errorf("memory: claim: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if r := s.rows[c.ID]; r != nil {
		return r.found(now), nil, nil
	}
	r := &row{}
	a := s.hold(r, c, 1, now)
	s.rows[c.ID] = r
	heap.Push(&s.ends, r)
	return r.found(now), a, nil
}

// TakeOver implements [store.Store].
func (s *Store) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return store.Found{}, nil, fmt.Errorf("memory: take over: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.rows[c.ID]
	if r == nil {
		return store.Found{ID: c.ID}, nil, nil
	}
	found := r.found(now)
	if r.token != seen || !found.Expired && !found.LeaseOver() {
		return found, nil, nil
	}
	number := r.number + 1
	if found.Expired {
		number = 1
	}
	a := s.hold(r, c, number, now)
	heap.Fix(&s.ends, r.index)
	return r.found(now), a, nil
}

// hold writes the claim into r. The caller puts r in its place among the ends.
func (s *Store) hold(r *row, c store.Claim, number int, now time.Time) *attempt {
	index := r.index
	*r = row{
		id:          c.ID,
		token:       c.Token,
		number:      number,
		requestHash: c.RequestHash,
		procedure:   c.Procedure,
		state:       store.InProgress,
		expiresAt:   now.Add(c.TTL),
		leaseEnd:    now.Add(c.Lease),
		index:       index,
	}
	r.setEnd()
	return &attempt{store: s, row: r, token: c.Token, lease: c.Lease}
}

// Look implements [store.Store].
func (s *Store) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: look: %w", err)
	}
	if len(ids) > store.MaxLook {
		return nil, fmt.Errorf("memory: look: %d ids, at most %d", len(ids), store.MaxLook)
	}
	found := make([]store.Found, len(ids))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i, id := range ids {
		if r := s.rows[id]; r != nil {
			found[i] = r.found(now)
		} else {
			found[i].ID = id
		}
	}
	return found, nil
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, id store.ID) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memory: forget: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[id]
	if r == nil {
		return false, nil
	}
	s.remove(r)
	return true, nil
}

// Sweep implements [store.Store], in the order of the time at which rows expire, then scope, then key. It keeps other
// calls waiting while it runs, which for 100,000 rows deleted is about a tenth of a second.
func (s *Store) Sweep(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
	if err := ctx.Err(); err != nil {
		return from, 0, fmt.Errorf("memory: sweep: %w", err)
	}
	if limit < 1 || limit > store.MaxSweep {
		return from, 0, fmt.Errorf("memory: sweep: limit %d, must be 1 to %d", limit, store.MaxSweep)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	// No row up to from needs to be passed over: a sweep leaves no expired row behind, and a row that changes or is made
	// later expires later.
	deleted := 0
	for ; deleted < limit && len(s.ends) > 0 && s.ends[0].expired(now); deleted++ {
		r := s.ends[0]
		from = store.Cursor{ExpiresAt: r.end, ID: r.id}
		s.remove(r)
	}
	return from, deleted, nil
}

// Renew implements [store.Renewer]. It renews a lease that is over, too, as long as no other attempt took the key.
func (s *Store) Renew(ctx context.Context, held []store.Held, lease time.Duration) ([]store.Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: renew: %w", err)
	}
	if len(held) > store.MaxLook {
		return nil, fmt.Errorf("memory: renew: %d claims, at most %d", len(held), store.MaxLook)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var lost []store.Token
	for _, h := range held {
		r := s.rows[h.ID]
		if r == nil || r.token != h.Token || r.state != store.InProgress {
			lost = append(lost, h.Token)
			continue
		}
		r.leaseEnd = now.Add(lease)
		s.reorder(r)
	}
	return lost, nil
}

// reorder puts r in its place after a change of its times.
func (s *Store) reorder(r *row) {
	r.setEnd()
	heap.Fix(&s.ends, r.index)
}

func (s *Store) remove(r *row) {
	heap.Remove(&s.ends, r.index)
	delete(s.rows, r.id)
}

// attempt is a claim that won. It holds the row itself: a row that was removed is never used for another claim.
type attempt struct {
	store *Store
	row   *row
	token store.Token
	lease time.Duration
}

// holds reports whether the row is still this attempt's. The caller has locked the store.
func (a *attempt) holds() bool { return a.row.index != removed && a.row.token == a.token }

// Context returns ctx: a leased attempt adds nothing.
func (a *attempt) Context(ctx context.Context) context.Context { return ctx }

// Complete implements [store.Attempt]. It never calls r.Readable. Called again after it succeeded, it changes nothing and
// succeeds.
func (a *attempt) Complete(_ context.Context, r store.Record, _ bool) error {
	if r.State != store.Completed && r.State != store.NotKept {
		return fmt.Errorf("memory: complete: a record cannot be %v", r.State)
	}
	reply := bytes.Clone(r.Reply) // the caller may use its buffer again
	s := a.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.holds() {
		return fmt.Errorf("memory: complete: %w", store.ErrFenced)
	}
	if a.row.state != store.InProgress {
		return nil
	}
	a.row.state, a.row.code, a.row.reply = r.State, r.Code, reply
	if least := time.Now().Add(a.lease); a.row.expiresAt.Before(least) {
		a.row.expiresAt = least
	}
	s.reorder(a.row)
	return nil
}

// Release implements [store.Attempt]. It fails with [store.ErrFenced] alone.
func (a *attempt) Release(context.Context) error {
	s := a.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.holds() || a.row.state != store.InProgress {
		return fmt.Errorf("memory: release: %w", store.ErrFenced)
	}
	s.remove(a.row)
	return nil
}

package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// plain is what the two stores of a database have in common.
type plain struct{ *database }

func (s plain) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.rows.Look(ctx, ids)
	for i := range found {
		if x := s.inFlight[found[i].ID]; x != nil && s.showsInFlight {
			found[i] = claimOf(x.claim, 1)
		}
	}
	return found, err
}

func (s plain) Forget(ctx context.Context, id store.ID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows.Forget(ctx, id)
}

func (s plain) Sweep(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows.Sweep(ctx, from, limit)
}

func outOfSight(id store.ID) store.Found { return store.Found{ID: id, State: store.InProgress} }

// transactional is a sound transactional store, but for its database's faults.
type transactional struct{ plain }

func (s transactional) Transactional() bool { return true }

func (s transactional) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	return s.begin(ctx, c, func(row store.Found) (int, store.Token) {
		if row.State == store.Absent {
			return 1, store.Token{}
		}
		return 0, store.Token{}
	})
}

func (s transactional) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	return s.begin(ctx, c, func(row store.Found) (int, store.Token) {
		switch {
		case row.State == store.Absent || row.Token != seen:
			return 0, seen
		case row.Expired:
			return 1, seen
		case row.LeaseOver():
			return row.Attempt + 1, seen
		}
		return 0, seen
	})
}

// nextAttempt says which attempt at a key comes next, 0 if none may, and the token of the row that it takes over.
type nextAttempt func(row store.Found) (number int, seen store.Token)

// begin claims the key as the attempt that next says.
func (s transactional) begin(ctx context.Context, c store.Claim, next nextAttempt) (store.Found, store.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return store.Found{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.Found{}, nil, errors.New("the store is closed")
	}
	if s.inFlight[c.ID] != nil {
		if s.saysNothing {
			return store.Found{ID: c.ID}, nil, nil
		}
		return outOfSight(c.ID), nil, nil
	}
	row := s.row(ctx, c.ID)
	number, seen := next(row)
	if number == 0 {
		return row, nil, nil
	}
	x := &transaction{db: s.database, claim: c, number: number, seen: seen, began: time.Now(), done: make(chan struct{})}
	s.inFlight[c.ID] = x
	return store.Found{ID: c.ID, State: store.InProgress, Token: c.Token, Attempt: number}, x, nil
}

func (s transactional) Drain(ctx context.Context) error {
	s.mu.Lock()
	var held []chan struct{}
	for _, x := range s.inFlight {
		held = append(held, x.done)
	}
	if s.drainCloses {
		s.closed = true
	}
	s.mu.Unlock()
	if !s.drainWaits {
		return nil
	}
	for _, done := range held {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// leased is a sound leased store, but for its database's faults.
type leased struct{ plain }

func (s leased) Transactional() bool { return false }

func (s leased) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[c.ID] != nil && !s.leasedIsBlind {
		return outOfSight(c.ID), nil, nil
	}
	return s.step(s.rows.Claim(ctx, c))
}

func (s leased) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[c.ID] != nil {
		return outOfSight(c.ID), nil, nil
	}
	return s.step(s.rows.TakeOver(ctx, c, seen))
}

func (s leased) step(f store.Found, a store.Attempt, err error) (store.Found, store.Attempt, error) {
	if a != nil {
		a = stepped{s.database, a}
	}
	return f, a, err
}

func (s leased) Renew(ctx context.Context, held []store.Held, lease time.Duration) ([]store.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, err := s.rows.Renew(ctx, held, lease)
	for _, h := range held {
		if x := s.inFlight[h.ID]; s.reportsLost && x != nil && !slices.Contains(lost, h.Token) {
			lost = append(lost, h.Token)
		}
	}
	return lost, err
}

// stepped is a leased attempt that settles in one step of its database.
type stepped struct {
	db *database
	store.Attempt
}

func (a stepped) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	a.db.mu.Lock()
	defer a.db.mu.Unlock()
	err := a.Attempt.Complete(ctx, r, keepWrites)
	if a.db.unfenced && errors.Is(err, store.ErrFenced) {
		return nil
	}
	return err
}

func (a stepped) Release(ctx context.Context) error {
	a.db.mu.Lock()
	defer a.db.mu.Unlock()
	return a.Attempt.Release(ctx)
}

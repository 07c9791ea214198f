package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// claimLeased inserts the row and looks, in one flight: two statements, since one alone would not see a row that another
// transaction commits after the statement began.
func (s *Store) claimLeased(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	found, attempt, err := s.win(ctx, c, s.sql.claim, s.claimArgs(c)...)
	if err != nil {
		return store.Found{}, nil, fmt.Errorf("postgres: claim: %w", err)
	}
	if found.State == store.Absent {
		// The key's lock is held, by a transactional attempt or for the moment of another claim.
		return outOfSight(c.ID), nil, nil
	}
	return found, attempt, nil
}

// takeOverLeased updates the row that was seen and looks, in one flight.
func (s *Store) takeOverLeased(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	found, attempt, err := s.win(ctx, c, s.sql.takeOver, append(s.claimArgs(c), uuid(seen))...)
	if err != nil {
		return store.Found{}, nil, fmt.Errorf("postgres: take over: %w", err)
	}
	if attempt == nil && found.Token == seen && stale(found) {
		return outOfSight(c.ID), nil, nil // still there to be taken, so another holds its lock
	}
	return found, attempt, nil
}

// outOfSight is what is known of a key whose lock is held.
func outOfSight(id store.ID) store.Found { return store.Found{ID: id, State: store.InProgress} }

// stale reports whether a row may be taken over.
func stale(f store.Found) bool { return f.Expired || f.LeaseOver() }

func (s *Store) claimArgs(c store.Claim) []any {
	return []any{c.ID.Scope, c.ID.Key, c.Procedure, uuid(c.Token), c.RequestHash,
		c.Lease.Microseconds(), c.TTL.Microseconds(), s.lockID(c.ID)}
}

// win sends a claim and a look. The claim has won where its own token stands in the row then, whether the first sending or
// a second one, after an acknowledgement that was lost, put it there.
func (s *Store) win(ctx context.Context, c store.Claim, sql string, args ...any) (found store.Found, _ store.Attempt, err error) {
	queue := func(b *pgx.Batch) {
		b.Queue(sql, args...)
		b.Queue(s.sql.look, c.ID.Scope, c.ID.Key)
	}
	err = s.query(ctx, queue, func(results pgx.BatchResults) error {
		if _, err := results.Exec(); err != nil {
			return err
		}
		found, err = scanFound(results.QueryRow(), c.ID)
		return err
	})
	if err != nil || found.Token != c.Token {
		return found, nil, err
	}
	return found, &leasedAttempt{store: s, id: c.ID, token: c.Token, lease: c.Lease}, nil
}

// leasedAttempt is a claim that has committed.
type leasedAttempt struct {
	store *Store
	id    store.ID
	token store.Token
	lease time.Duration
}

func (a *leasedAttempt) Context(ctx context.Context) context.Context { return ctx }

// Complete stores the record by an UPDATE that the token fences, in one flight.
func (a *leasedAttempt) Complete(ctx context.Context, r store.Record, _ bool) error {
	n, err := a.store.exec(ctx, a.store.sql.complete, a.id.Scope, a.id.Key, uuid(a.token),
		r.State.String(), codeText(r.Code), readableText(r), r.Reply, a.lease.Microseconds())
	if err == nil && n == 0 {
		err = store.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("postgres: complete: %w", err)
	}
	return nil
}

// Release deletes the row, in one flight.
func (a *leasedAttempt) Release(ctx context.Context) error {
	if _, err := a.store.exec(ctx, a.store.sql.release, a.id.Scope, a.id.Key, uuid(a.token)); err != nil {
		return fmt.Errorf("postgres: release: %w", err)
	}
	return nil
}

// Renew makes the leases last for lease from now, in one flight.
func (s *Store) Renew(ctx context.Context, held []store.Held, lease time.Duration) (lost []store.Token, err error) {
	if len(held) > store.MaxLook {
		return nil, fmt.Errorf("postgres: renew %d leases: at most %d at once", len(held), store.MaxLook)
	}
	if len(held) == 0 {
		return nil, nil
	}
	scopes, keys, tokens := make([]string, len(held)), make([]string, len(held)), make([]pgtype.UUID, len(held))
	for i, h := range held {
		scopes[i], keys[i], tokens[i] = h.ID.Scope, h.ID.Key, uuid(h.Token)
	}
	queue := func(b *pgx.Batch) {
		b.Queue(s.sql.renew, scopes, keys, tokens, lease.Microseconds())
	}
	err = s.query(ctx, queue, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		lost, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Token, error) {
			var token [16]byte
			err := row.Scan(&token)
			return token, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: renew: %w", err)
	}
	return lost, nil
}

func uuid(t store.Token) pgtype.UUID { return pgtype.UUID{Bytes: t, Valid: true} }

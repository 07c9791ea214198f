package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// claimLeased inserts the row and looks, in one flight: two statements, since one alone would not see a row that another
// transaction commits after the statement began. A second sending, after an acknowledgement that was lost, may meet the row
// that the first one made, and knows it by its token.
func (s *Store) claimLeased(ctx context.Context, c store.Claim) (found store.Found, _ store.Attempt, err error) {
	look, args := s.sql.lookOther, []any{c.ID.Scope, c.ID.Key, uuid(c.Token)}
	err = s.query(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.claim, s.claimArgs(c)...)
		b.Queue(look, args...)
		look, args = s.sql.look, args[:2]
	}, func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if found, err = scanFound(results.QueryRow(), c.ID); err == nil && tag.RowsAffected() > 0 {
			found = claimed(c, 1)
		}
		return err
	})
	switch {
	case err != nil:
		return store.Found{}, nil, fmt.Errorf("postgres: claim: %w", err)
	case found.State == store.Absent:
		// The key's lock is held, by a transactional attempt or for the moment of another claim.
		return outOfSight(c.ID), nil, nil
	default:
		return found, s.attempt(c, found), nil
	}
}

// takeOverLeased updates the row that was seen and looks, in one flight.
func (s *Store) takeOverLeased(ctx context.Context, c store.Claim, seen store.Token) (found store.Found, _ store.Attempt, err error) {
	err = s.query(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.takeOver, append(s.claimArgs(c), uuid(seen))...)
		b.Queue(s.sql.look, c.ID.Scope, c.ID.Key)
	}, func(results pgx.BatchResults) error {
		if _, err := results.Exec(); err != nil {
			return err
		}
		found, err = scanFound(results.QueryRow(), c.ID)
		return err
	})
	switch {
	case err != nil:
		return store.Found{}, nil, fmt.Errorf("postgres: take over: %w", err)
	case found.Token == seen && stale(found):
		return outOfSight(c.ID), nil, nil // still there to be taken, so another holds its lock
	default:
		return found, s.attempt(c, found), nil
	}
}

// claimed is what a claim that won has made.
func claimed(c store.Claim, attempt int) store.Found {
	return store.Found{ID: c.ID, State: store.InProgress, Token: c.Token, Attempt: attempt, RequestHash: c.RequestHash,
		Procedure: c.Procedure, LeaseLeft: c.Lease}
}

// attempt is the claim's, where its token stands in the row, and nil where another's does.
func (s *Store) attempt(c store.Claim, found store.Found) store.Attempt {
	if found.Token != c.Token {
		return nil
	}
	return &leasedAttempt{store: s, id: c.ID, token: c.Token, lease: c.Lease}
}

// outOfSight is what is known of a key whose lock is held.
func outOfSight(id store.ID) store.Found { return store.Found{ID: id, State: store.InProgress} }

// stale reports whether a row may be taken over.
func stale(f store.Found) bool { return f.Expired || f.LeaseOver() }

func (s *Store) claimArgs(c store.Claim) []any {
	return []any{c.ID.Scope, c.ID.Key, c.Procedure, uuid(c.Token), c.RequestHash,
		c.Lease, c.TTL, s.lockID(c.ID)}
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
		r.State.String(), codeText(r.Code), readableText(r), r.Reply, a.lease)
	if err == nil && n == 0 {
		err = store.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("postgres: complete: %w", err)
	}
	a.store.recent.add(a.id)
	return nil
}

// Release deletes the row, in one flight. Where that is sent again and finds no row, the sending that got no answer may have
// deleted it, or another attempt may have taken the key over before: its error is the answer then.
func (a *leasedAttempt) Release(ctx context.Context) error {
	var deleted int64
	var unanswered error
	err := a.store.flight(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, a.store.sql.release, a.id.Scope, a.id.Key, uuid(a.token))
		deleted = tag.RowsAffected()
		if err != nil && !definite(err) && !pgconn.SafeToRetry(err) {
			unanswered = err
		}
		return explain(err)
	})
	switch {
	case err != nil || deleted > 0:
	case unanswered != nil:
		err = fmt.Errorf("the key is the attempt's no longer, and may have been released: %w", unanswered)
	default:
		err = store.ErrFenced
	}
	if err != nil {
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
		b.Queue(s.sql.renew, scopes, keys, tokens, lease)
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

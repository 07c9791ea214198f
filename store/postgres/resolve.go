package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// resolve finds out what became of a COMMIT that was not answered. It drops the connection and waits for the key's lock on
// another one: holding it proves that the old transaction is over. Then the row tells, by its token, whether it committed.
//
// It returns nil where it did. An error otherwise says that nothing was done, or, where the lock could not be had in time,
// that it is still not known; a retry with the key finds out.
func (a *txAttempt) resolve(ctx context.Context, lost error) error {
	closeCtx, cancel := a.store.flightContext(ctx)
	defer cancel()
	// The connection is broken already: whether it says goodbye does not matter.
	_ = a.conn.Conn().Close(closeCtx)
	a.conn.Release()

	found, err := a.store.lookLocked(ctx, a.claim.ID)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: complete: it is not known whether the transaction committed: %w", errors.Join(lost, err))
	case found.Token == a.claim.Token:
		return nil
	default:
		return fmt.Errorf("postgres: complete: the connection was lost and the transaction did not commit: %w", lost)
	}
}

// lookLocked reads a key's row once nobody holds its lock, in one flight of its own transaction.
func (s *Store) lookLocked(ctx context.Context, id store.ID) (found store.Found, err error) {
	// The server gives up before the flight does, so that the connection stays in order.
	bound := milliseconds(s.timeout * 9 / 10)
	queue := func(b *pgx.Batch) {
		b.Queue("begin isolation level read committed")
		b.Queue(s.sql.waitForLock, s.lockID(id), bound)
		b.Queue(s.sql.look, id.Scope, id.Key)
		b.Queue("rollback")
	}
	err = s.query(ctx, queue, func(results pgx.BatchResults) error {
		for range 2 {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		found, err = scanFound(results.QueryRow(), id)
		return err
	})
	return found, err
}

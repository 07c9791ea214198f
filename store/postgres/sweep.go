package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Sweep deletes expired rows, the longest expired first, in one flight. The cursor is a time, that of the first row
// deleted: the dead entries behind it are not read again, and those of the batch itself once more.
func (s *Store) Sweep(ctx context.Context, from store.Cursor, limit int) (next store.Cursor, deleted int, err error) {
	if limit < 1 || limit > store.MaxSweep {
		return from, 0, fmt.Errorf("postgres: sweep %d rows: 1 to %d at once", limit, store.MaxSweep)
	}
	queue := func(b *pgx.Batch) {
		b.Queue(s.sql.sweep, from.ExpiresAt, limit)
	}
	next = from
	err = s.query(ctx, queue, func(results pgx.BatchResults) error {
		return results.QueryRow().Scan(&deleted, &next.ExpiresAt)
	})
	if err != nil {
		return from, 0, fmt.Errorf("postgres: sweep: %w", err)
	}
	return next, deleted, nil
}

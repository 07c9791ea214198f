package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Complete inserts the finished row and commits, in one flight. Whatever it returns, the transaction is over.
func (a *txAttempt) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	a.tx.ended.Store(true)
	err := a.commit(ctx, r, r.Code == code.Code_OK || keepWrites)
	if err == nil {
		a.store.recent.add(a.claim.ID)
	}
	if err == nil || definite(err) || errors.Is(err, store.ErrRejected) {
		return a.end(ctx, err)
	}
	return a.resolve(ctx, err)
}

// commit sends the last flight. The writes of an error are undone first, with the savepoint; where a statement has failed
// that needs a flight of its own, since pgx may prepare the others, and a failed transaction prepares nothing.
func (a *txAttempt) commit(ctx context.Context, r store.Record, keepWrites bool) error {
	ctx, cancel := a.store.flightContext(ctx)
	defer cancel()
	conn, sql := a.conn.Conn(), &a.store.sql
	b := new(pgx.Batch)
	switch status := conn.PgConn().TxStatus(); {
	case conn.IsClosed():
		return errors.New("the transaction's connection is gone")
	case status == 'I':
		return fmt.Errorf("%w: the handler ended it", store.ErrRejected)
	case status == 'E' && keepWrites:
		return fmt.Errorf("%w: a statement in it had failed", store.ErrRejected)
	case status == 'E':
		if _, err := conn.Exec(ctx, sql.toSavepoint); err != nil {
			return err
		}
	case !keepWrites:
		b.Queue(sql.toSavepoint)
	}
	b.Queue(sql.leave) // fails where the transaction is no longer the one that the claim began
	inserted := b.Len()
	b.Queue(sql.insert, a.insertArgs(r)...)
	b.Queue("commit")
	return a.readCommit(conn.SendBatch(ctx, b), b.Len(), inserted)
}

func (a *txAttempt) insertArgs(r store.Record) []any {
	c := &a.claim
	return []any{c.ID.Scope, c.ID.Key, c.Procedure, r.State.String(), uuid(c.Token), a.number, c.RequestHash,
		codeText(r.Code), readableText(r), r.Reply, c.TTL, c.Lease}
}

// readCommit reads the results of the last flight: n statements, of which the one at inserted is the finished row's.
func (a *txAttempt) readCommit(results pgx.BatchResults, n, inserted int) error {
	return readBatch(results, func(results pgx.BatchResults) error {
		for i := range n {
			tag, err := results.Exec()
			switch {
			case err != nil && i == inserted && sqlState(err) == "23505": // unique_violation
				return fmt.Errorf("%w: %w", store.ErrFenced, err)
			case err != nil:
				return err
			case i == n-1 && tag.String() != "COMMIT":
				// A batched COMMIT of a failed transaction returns no error, only this tag.
				return fmt.Errorf("%w: COMMIT was answered with %s", store.ErrRejected, tag)
			}
		}
		return nil
	})
}

// end gives the connection back after a definite answer, and says of a failed attempt what kind of failure it was. The
// server has undone it.
func (a *txAttempt) end(ctx context.Context, err error) error {
	defer a.conn.Release()
	if err == nil {
		return nil
	}
	// The rollback's own failure closes the connection, which ends the transaction as well.
	return fmt.Errorf("postgres: complete: %w", errors.Join(classify(err), a.rollback(ctx)))
}

// classify says what a server's refusal of the last flight means for the caller.
func classify(err error) error {
	switch state := sqlState(err); {
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrRejected):
		return err
	case store.IsConflict(err):
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case isTransient(state):
		return err
	default:
		return fmt.Errorf("%w: %w", store.ErrRejected, err)
	}
}

// isTransient reports whether a SQLSTATE speaks of the server's condition and not of what the handler did: connection,
// resources, object state, operator intervention, system and internal errors.
func isTransient(state string) bool {
	for _, class := range []string{"08", "53", "55", "57", "58", "XX"} {
		if strings.HasPrefix(state, class) {
			return true
		}
	}
	return false
}

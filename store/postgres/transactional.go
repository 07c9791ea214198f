package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// begin starts a transaction, tries the key's lock and looks at its row, in one flight; with seen set it removes the row
// that has that token, if its lease or time is over. The lock is the claim. Whoever does not win is answered at once, and
// the transaction rolled back behind the answer.
func (s *Store) begin(ctx context.Context, c store.Claim, seen *store.Token) (store.Found, store.Attempt, error) {
	a := &txAttempt{store: s, claim: c}
	won, err := a.begin(ctx, seen)
	if err != nil && mayPass(err) && ctx.Err() == nil {
		a = &txAttempt{store: s, claim: c}
		won, err = a.begin(ctx, seen)
	}
	switch {
	case err != nil:
		return store.Found{}, nil, fmt.Errorf("postgres: claim: %w", err)
	case won:
		return claimed(c, a.number), a, nil
	default:
		return a.found, nil, nil
	}
}

// txAttempt is a claim that is a transaction, in flight on conn.
type txAttempt struct {
	store    *Store
	conn     *pgxpool.Conn
	claim    store.Claim
	found    store.Found // by the claim's look
	number   int         // the attempt's, once it has the lock on a free key
	locked   bool
	tookOver bool
	tx       *handlerTx
}

func (a *txAttempt) begin(ctx context.Context, seen *store.Token) (won bool, err error) {
	if a.conn, err = a.store.acquire(ctx); err != nil {
		return false, err
	}
	won, err = a.claimFlight(ctx, seen)
	switch {
	case won:
		return true, nil
	case err == nil && a.locked:
		// The key's lock is given back before the answer: whoever comes for the key next is not to find it held.
		return false, a.Release(ctx)
	default:
		a.rollbackBehind(ctx)
		return false, err
	}
}

// claimFlight sends the first flight and reads what came of it.
func (a *txAttempt) claimFlight(ctx context.Context, seen *store.Token) (won bool, err error) {
	ctx, cancel := a.store.flightContext(ctx)
	defer cancel()
	sql, id := &a.store.sql, a.claim.ID
	lock := a.store.lockID(id)
	b := new(pgx.Batch)
	b.BeginTx(pgx.TxOptions{IsoLevel: a.store.isolation})
	limit := max(a.claim.Lease, leastLimit)
	b.Queue(sql.tryLock, id.Scope, id.Key, lock, milliseconds(limit), milliseconds(limit/clientChecks))
	if seen != nil {
		b.Queue(sql.removeStale, id.Scope, id.Key, uuid(*seen), lock)
	}
	b.Queue(sql.look, id.Scope, id.Key)
	b.Queue(sql.savepoint)

	results := a.conn.SendBatch(ctx, b)
	a.tx = a.store.newHandlerTx(results.Tx())
	err = readBatch(results, func(results pgx.BatchResults) error { return a.readClaim(results, seen != nil) })
	switch free := a.found.State == store.Absent; {
	case err != nil:
		return false, err
	case free && a.number > 0:
		return true, nil
	case !a.locked && (stale(a.found) || free && seen == nil):
		a.found = outOfSight(id)
	}
	return false, nil
}

// leastLimit is the least to which a transaction is limited, whatever its lease: below it the limit would meet transactions
// that only wait for a processor.
const leastLimit = time.Second

// clientChecks is how often within a lease a busy backend looks whether its client is still there.
const clientChecks = 4

// milliseconds writes a duration as PostgreSQL's settings take it: at least one, since zero would be no limit.
func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", max(1, d.Milliseconds())) }

// readClaim reads what the first flight found, and the attempt's number where the key was free or was taken over.
func (a *txAttempt) readClaim(results pgx.BatchResults, takingOver bool) (err error) {
	if _, err := results.Exec(); err != nil { // BEGIN
		return err
	}
	if err := results.QueryRow().Scan(&a.locked, nil, nil, nil, nil); err != nil {
		return err
	}
	if takingOver {
		err := results.QueryRow().Scan(&a.number)
		if a.tookOver = err == nil; err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	} else if a.locked {
		a.number = 1
	}
	a.found, err = scanFound(results.QueryRow(), a.claim.ID)
	return err
}

func (a *txAttempt) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, txKey{}, a.tx)
}

// Release undoes the transaction, in one flight, before the caller is answered: a retry that comes at once finds the key
// free. What a take-over removed stays removed.
func (a *txAttempt) Release(ctx context.Context) error {
	defer a.conn.Release()
	a.tx.ended.Store(true)
	err := a.commitTakeOver(ctx)
	if err = errors.Join(err, a.rollback(ctx)); err != nil {
		return fmt.Errorf("postgres: release: %w", err)
	}
	return nil
}

// commitTakeOver commits the removal of the row that was taken over, alone; not where the handler ended the transaction.
func (a *txAttempt) commitTakeOver(ctx context.Context) error {
	conn := a.conn.Conn()
	if !a.tookOver || conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := a.store.flightContext(ctx)
	defer cancel()
	// Both in one text, without arguments: that is not prepared, so that a failed transaction takes it too.
	_, err := conn.Exec(ctx, a.store.sql.toSavepoint+"; commit")
	return err
}

// rollback ends the transaction. A connection on which that fails is closed: the server ends the transaction then.
func (a *txAttempt) rollback(ctx context.Context) error {
	ctx, cancel := a.store.flightContext(ctx)
	defer cancel()
	conn := a.conn.Conn()
	if conn.IsClosed() {
		return errors.New("the transaction's connection is gone")
	}
	if conn.PgConn().TxStatus() == 'I' {
		return nil // nothing is open: BEGIN failed, or the handler ended the transaction
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	return nil
}

// rollbackBehind ends a transaction that claimed nothing, after its caller was answered.
func (a *txAttempt) rollbackBehind(ctx context.Context) {
	a.tx.ended.Store(true)
	a.store.behind.Go(func() {
		defer a.conn.Release()
		if a.conn.Conn().IsClosed() {
			return
		}
		if err := a.rollback(ctx); err != nil {
			a.store.logger.LogAttrs(ctx, slog.LevelWarn,
				"idempotency: the transaction of a call that was refused could not be rolled back; its connection is closed",
				slog.Any("error", err))
		}
	})
}

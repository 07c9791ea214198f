package postgres

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrTxOwned is what Commit and Rollback of a handler's transaction return: the guard ends it, by the handler's reply. A
// handler undoes a part of its work within a transaction of its own, from Begin.
var ErrTxOwned = errors.New("postgres: the transaction is the idempotency guard's to commit or roll back")

// DB is what a handler needs to work in the guard's transaction or, where there is none, on the pool. Begin within a
// transaction makes a savepoint.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Querier returns the transaction of the call that ctx belongs to, and pool where the call has none: it came without a
// key, or the store is leased. One handler so serves every mode.
func Querier(ctx context.Context, pool *pgxpool.Pool) DB {
	if tx, ok := TxFrom(ctx); ok {
		return tx
	}
	return pool
}

// TxFrom returns the transaction of the call that ctx belongs to, and false where the call has none.
//
// It is the handler's until the handler returns; after that each of its methods returns pgx.ErrTxClosed. Its Commit and
// Rollback return ErrTxOwned. Ending it by SQL, or through Conn, makes the call fail. Like any pgx.Tx it is not for
// concurrent use.
func TxFrom(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*handlerTx)
	return tx, ok
}

type txKey struct{}

// handlerTx is the transaction as a handler sees it, the outermost or one that it began within. All of a call share ended.
type handlerTx struct {
	inner pgx.Tx
	owned bool // by the guard, which alone ends it
	ended *atomic.Bool
	after pgx.Tx // answers ErrTxClosed
}

func (s *Store) newHandlerTx(inner pgx.Tx) *handlerTx {
	return &handlerTx{inner: inner, owned: true, ended: new(atomic.Bool), after: s.closedTx}
}

// newClosedTx makes a pgx transaction that is over.
func newClosedTx() pgx.Tx {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
}

func (t *handlerTx) tx() pgx.Tx {
	if t.ended.Load() {
		return t.after
	}
	return t.inner
}

// Begin makes a savepoint.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := t.tx().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &handlerTx{inner: nested, ended: t.ended, after: t.after}, nil
}

// Commit releases the savepoint of a transaction from Begin.
func (t *handlerTx) Commit(ctx context.Context) error {
	if t.owned && !t.ended.Load() {
		return ErrTxOwned
	}
	return t.tx().Commit(ctx)
}

// Rollback goes back to the savepoint of a transaction from Begin.
func (t *handlerTx) Rollback(ctx context.Context) error {
	if t.owned && !t.ended.Load() {
		return ErrTxOwned
	}
	return t.tx().Rollback(ctx)
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return t.tx().CopyFrom(ctx, table, columns, rows)
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.tx().SendBatch(ctx, b)
}

func (t *handlerTx) LargeObjects() pgx.LargeObjects { return t.tx().LargeObjects() }

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.tx().Prepare(ctx, name, sql)
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.tx().Exec(ctx, sql, args...)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.tx().Query(ctx, sql, args...) //nolint:rowserrcheck // the caller's to check
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.tx().QueryRow(ctx, sql, args...)
}

// Conn returns the connection, and nil once the handler has returned.
func (t *handlerTx) Conn() *pgx.Conn { return t.tx().Conn() }

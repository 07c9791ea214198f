package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// handler is what a test does in its transaction.
type handler func(ctx context.Context, tx pgx.Tx) error

const insertEffect = "insert into effects values (1)"

// sqls runs statements one by one, as a handler would that does not look at errors.
func sqls(statements ...string) handler {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range statements {
			_, _ = tx.Exec(ctx, sql)
		}
		return nil
	}
}

func effects(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return queryOne[int](t, pool, "select count(*) from effects")
}

// What a handler does to its transaction never ends in an answer "done" that is not, in any exec mode.
func TestHandlerCannotBreakOut(t *testing.T) {
	tests := map[string]struct {
		handler handler
		record  store.Record
		keep    bool
		want    error // of Complete
		effects int
		kept    bool
	}{
		"it writes and succeeds": {handler: sqls(insertEffect), record: done("ok"), effects: 1, kept: true},
		"raw ROLLBACK":           {handler: sqls(insertEffect, "rollback"), record: done("ok"), want: store.ErrRejected},
		"raw COMMIT":             {handler: sqls(insertEffect, "commit"), record: done("ok"), want: store.ErrRejected, effects: 1},
		"raw ROLLBACK and BEGIN": {handler: sqls("rollback", "begin", insertEffect), record: done("ok"), want: store.ErrRejected},
		"raw COMMIT and BEGIN": {
			handler: sqls(insertEffect, "commit", "begin", insertEffect), record: done("ok"), want: store.ErrRejected, effects: 1,
		},
		"raw ROLLBACK and BEGIN, then a kept error": {
			handler: sqls("rollback", "begin", insertEffect), record: declined("no"), want: store.ErrRejected,
		},
		"savepoints of its own, left open": {
			handler: sqls("savepoint mine", insertEffect, "savepoint mine", "release savepoint mine"), record: done("ok"),
			effects: 1, kept: true,
		},
		"a savepoint released that is not its own": {
			handler: sqls(insertEffect, "release savepoint idempotency"), record: done("ok"), want: store.ErrRejected,
		},
		"a failed transaction, success returned": {
			handler: sqls(insertEffect, "select 1/0"), record: done("ok"), want: store.ErrRejected,
		},
		"a failed transaction, an error to keep":     {handler: sqls(insertEffect, "select 1/0"), record: declined("no"), kept: true},
		"a failed transaction, its writes to keep":   {handler: sqls(insertEffect, "select 1/0"), record: declined("no"), keep: true, want: store.ErrRejected},
		"an error to keep undoes the writes":         {handler: sqls(insertEffect), record: declined("no"), kept: true},
		"an error to keep with its writes":           {handler: sqls(insertEffect), record: declined("no"), keep: true, effects: 1, kept: true},
		"a deferred constraint that fails at COMMIT": {handler: sqls("insert into lines values (7)"), record: done("ok"), want: store.ErrRejected},
		"a nested transaction rolled back": {
			handler: func(ctx context.Context, tx pgx.Tx) error {
				nested, err := tx.Begin(ctx)
				if err != nil {
					return err
				}
				_, err = nested.Exec(ctx, insertEffect)
				return errors.Join(err, nested.Rollback(ctx))
			},
			record: done("ok"), kept: true,
		},
		"a nested transaction within one, committed": {
			handler: func(ctx context.Context, tx pgx.Tx) error {
				return pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
					return pgx.BeginFunc(ctx, nested, func(inner pgx.Tx) error {
						_, err := inner.Exec(ctx, insertEffect)
						return err
					})
				})
			},
			record: done("ok"), effects: 1, kept: true,
		},
		"Commit and Rollback of its own": {
			handler: func(ctx context.Context, tx pgx.Tx) error {
				for _, end := range []func(context.Context) error{tx.Commit, tx.Rollback} {
					if err := end(ctx); !errors.Is(err, postgres.ErrTxOwned) {
						return errors.Join(errors.New("the handler could end its transaction"), err)
					}
				}
				_, err := tx.Exec(ctx, insertEffect)
				return err
			},
			record: done("ok"), effects: 1, kept: true,
		},
		"rows left open": {
			handler: func(ctx context.Context, tx pgx.Tx) error {
				// Left open: that is the point.
				rows, err := tx.Query(ctx, "select generate_series(1, 100000)")
				rows.Next()
				return err
			},
			record: done("ok"), want: errAny,
		},
	}
	for execName, execMode := range execModes {
		t.Run(execName, func(t *testing.T) {
			pool := newPool(t, inExecMode(execMode), maxConns(3))
			s := newStore(t, "transactional", pool)
			exec(t, pool, "create table effects (n integer)")
			exec(t, pool, "create table orders (id integer primary key)")
			exec(t, pool, "create table lines (order_id integer references orders deferrable initially deferred)")
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					exec(t, pool, "delete from effects")
					c := newClaim()
					a := win(t, s, c)
					tx, ok := postgres.TxFrom(a.Context(t.Context()))
					if !ok {
						t.Fatal("no transaction in the attempt's context")
					}
					if err := test.handler(t.Context(), tx); err != nil {
						t.Fatal(err)
					}
					err := a.Complete(t.Context(), test.record, test.keep)
					if wanted := errors.Is(err, test.want) || err != nil && errors.Is(test.want, errAny); !wanted {
						t.Errorf("Complete: %v, want %v", err, test.want)
					}
					if got := effects(t, pool); got != test.effects {
						t.Errorf("%d effects, want %d", got, test.effects)
					}
					found, err := s.Look(t.Context(), []store.ID{c.ID})
					if err != nil {
						t.Fatal(err)
					}
					if kept := found[0].State == store.Completed; kept != test.kept {
						t.Errorf("the key is %v; kept should be %v", found[0].State, test.kept)
					}
					mustBeClosed(t, tx)
				})
			}
		})
	}
}

var errAny = errors.New("any error")

// mustBeClosed checks every method of a transaction whose handler has returned.
func mustBeClosed(t *testing.T, tx pgx.Tx) {
	t.Helper()
	ctx := t.Context()
	_, begin := tx.Begin(ctx)
	_, prepare := tx.Prepare(ctx, "late", "select 1")
	_, run := tx.Exec(ctx, "select 1")
	rows, query := tx.Query(ctx, "select 1")
	rows.Close()
	_, copied := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"n"}, pgx.CopyFromRows(nil))
	b := new(pgx.Batch)
	b.Queue("select 1")
	objects := tx.LargeObjects()
	_, object := objects.Create(ctx, 0)
	for name, err := range map[string]error{
		"Begin": begin, "Prepare": prepare, "Exec": run, "Query": query, "CopyFrom": copied,
		"Commit": tx.Commit(ctx), "Rollback": tx.Rollback(ctx), "LargeObjects": object,
		"QueryRow": tx.QueryRow(ctx, "select 1").Scan(), "SendBatch": tx.SendBatch(ctx, b).Close(),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s after settling: %v, want ErrTxClosed", name, err)
		}
	}
	if tx.Conn() != nil {
		t.Error("Conn after settling is not nil")
	}
}

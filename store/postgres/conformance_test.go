package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
	"github.com/connect-idempotency/connect-idempotency-go/store/storetest"
)

// Both modes pass the suite in every exec mode.
func TestConformance(t *testing.T) {
	for execName, execMode := range execModes {
		for mode := range modes {
			t.Run(execName+"/"+mode, func(t *testing.T) {
				conform(t, newPool(t, inExecMode(execMode), maxConns(12)), mode)
			})
		}
	}
}

// conform runs the suite for one mode, on pool.
func conform(t *testing.T, pool *pgxpool.Pool, mode string) {
	t.Helper()
	exec(t, pool, "create table effects (key_table text not null, name text not null)")
	tables := &tables{pool: pool, mode: mode, of: make(map[store.Store]string)}
	storetest.Run(t, storetest.Config{
		New:     func(t *testing.T) store.Store { return tables.store(t, mode, tables.next()) },
		Pair:    tables.pair,
		Leased:  func(t *testing.T, s store.Store) store.Store { return tables.store(t, "leased", tables.name(s)) },
		Effects: tables.effects,
	})
}

// tables gives each store a table of its own, all in one database.
type tables struct {
	pool *pgxpool.Pool
	mode string

	mu   sync.Mutex
	last int
	of   map[store.Store]string
}

func (ts *tables) next() string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.last++
	return fmt.Sprintf("keys_%d", ts.last)
}

func (ts *tables) name(s store.Store) string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.of[s]
}

func (ts *tables) store(t *testing.T, mode, table string) store.Store {
	t.Helper()
	s := newStore(t, mode, ts.pool, postgres.WithTable(table))
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.of[s] = table
	return s
}

func (ts *tables) pair(t *testing.T) (a, b store.Store) {
	t.Helper()
	table := ts.next()
	return ts.store(t, ts.mode, table), ts.store(t, ts.mode, table)
}

func (ts *tables) effects(_ *testing.T, s store.Store) storetest.Effects {
	table := ts.name(s)
	return storetest.Effects{
		Write: func(ctx context.Context, name string) error {
			_, err := postgres.Querier(ctx, ts.pool).Exec(ctx, "insert into effects values ($1, $2)", table, name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = ts.pool.QueryRow(ctx, "select count(*) from effects where key_table = $1 and name = $2", table, name).Scan(&n)
			return n, err
		},
		Fail: func(ctx context.Context) error {
			if _, err := postgres.Querier(ctx, ts.pool).Exec(ctx, "select 1/0"); err == nil {
				return errors.New("a division by zero succeeded")
			}
			return nil
		},
	}
}

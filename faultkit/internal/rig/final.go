package rig

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// Charge is a row of the ledger.
type Charge struct{ ID, Key, Token string }

// Final is what the tables hold once the targets have ended.
type Final struct {
	At      int64                    // journal.Now before they were read
	Rows    map[string]journal.Found // by key
	Charges []Charge
	Left    []string // what is left over
}

// InProgress returns the keys whose rows say that they are in progress.
func (r *Rig) InProgress(ctx context.Context) (keys []string, err error) {
	err = r.Database.withConn(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "select key from "+postgres.DefaultTable+" where state = 'in_progress' order by key")
		if err != nil {
			return err
		}
		keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return keys, err
}

// AtRest says what the targets still hold though nobody calls them.
func (r *Rig) AtRest(ctx context.Context) (held []string, err error) {
	for _, s := range r.Servers {
		stat, err := s.Stat(ctx)
		if err != nil {
			held = append(held, fmt.Sprintf("server %d says nothing: %v", s.slot, err))
		}
		if stat.Acquired > 0 {
			held = append(held, fmt.Sprintf("server %d holds %d connections of its pool at rest", s.slot, stat.Acquired))
		}
	}
	var locks, open int
	err = r.Database.withConn(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select (select count(*) from pg_locks where locktype = 'advisory'),
			(select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid() and state <> 'idle')`).
			Scan(&locks, &open)
	})
	if locks > 0 {
		held = append(held, fmt.Sprintf("%d keys' locks are held at rest", locks))
	}
	if open > 0 {
		held = append(held, fmt.Sprintf("%d connections have a transaction open at rest", open))
	}
	return held, err
}

// Final reads the tables, then lets every key expire and sweeps: nothing may be left.
func (r *Rig) Final(ctx context.Context) (f Final, err error) {
	pool, err := pgxpool.New(ctx, r.Database.url())
	if err != nil {
		return f, err
	}
	defer pool.Close()
	st, err := postgres.New(pool)
	if err != nil {
		return f, err
	}
	f.At = journal.Now()
	if f.Rows, err = readRows(ctx, pool, st); err != nil {
		return f, err
	}
	charges, err := pool.Query(ctx, "select id, key, token from faultkit_charges order by added_at, id")
	if err != nil {
		return f, err
	}
	if f.Charges, err = pgx.CollectRows(charges, pgx.RowToStructByPos[Charge]); err != nil {
		return f, err
	}
	left, err := sweepAll(ctx, pool, st)
	if left > 0 {
		f.Left = append(f.Left, fmt.Sprintf("%d expired rows are left after a sweep", left))
	}
	return f, err
}

// readRows reads the table through the store, as the guard sees it.
func readRows(ctx context.Context, pool *pgxpool.Pool, st *postgres.Store) (map[string]journal.Found, error) {
	rows, err := pool.Query(ctx, "select scope, key from "+postgres.DefaultTable)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.ID])
	if err != nil {
		return nil, err
	}
	all := make(map[string]journal.Found, len(ids))
	for len(ids) > 0 {
		some := ids[:min(len(ids), 1000)]
		ids = ids[len(some):]
		found, err := st.Look(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			all[f.ID.Key] = *target.FoundOf(f)
		}
	}
	return all, nil
}

// sweepAll has all rows expire and sweeps them, and returns how many are left.
func sweepAll(ctx context.Context, pool *pgxpool.Pool, st *postgres.Store) (left int, err error) {
	const batch = 1000
	if _, err := pool.Exec(ctx, "update "+postgres.DefaultTable+" set expires_at = now()"); err != nil {
		return 0, err
	}
	var cursor store.Cursor
	for deleted := batch; deleted == batch; {
		if cursor, deleted, err = st.Sweep(ctx, cursor, batch); err != nil {
			return 0, err
		}
	}
	err = pool.QueryRow(ctx, "select count(*) from "+postgres.DefaultTable).Scan(&left)
	return left, err
}

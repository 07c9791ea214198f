package postgres

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

const expiredRows = 20_000

// tableOfExpired makes a store whose table holds expiredRows, in no order, and has been analyzed. Autovacuum stays away: its
// analysis would still see what is swept meanwhile, so that the index could not mark it as dead.
func tableOfExpired(t *testing.T) (*Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s, err := New(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`
		insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, code, expires_at)
		select 'tenant', n::text, '/p', 'completed', '00000000-0000-0000-0000-000000000001', 1, 'v1', 'OK',
			now() - n * interval '1 second'
		from generate_series(1, ` + strconv.Itoa(expiredRows) + `) n order by md5(n::text)`,
		"alter table idempotency_keys set (autovacuum_enabled = off)", "vacuum analyze idempotency_keys",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return s, pool
}

// A sweep goes by its index to what has expired, and straight to the rows from there, whether its plan is made for the
// values or once for all of them.
func TestPlanOfASweep(t *testing.T) {
	s, pool := tableOfExpired(t)
	for _, planned := range []string{"force_custom_plan", "force_generic_plan"} {
		for name, sql := range map[string]string{
			"from the beginning": "explain execute sweep('0001-01-01', 1000)",
			"from a cursor":      "explain execute sweep(now() - interval '3 hours', 1000)",
		} {
			var plan []string
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+planned); err != nil {
					return err
				}
				if _, err := tx.Exec(t.Context(), "prepare sweep (timestamptz, bigint) as "+s.sql.sweep); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), sql, pgx.QueryExecModeExec)
				if err != nil {
					return err
				}
				if plan, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
					return err
				}
				_, err = tx.Exec(t.Context(), "deallocate sweep")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(plan, "\n")
			if !strings.Contains(text, "Index Scan using idempotency_keys_expiry") || !strings.Contains(text, "Tid Scan") ||
				strings.Contains(text, "Seq Scan") {
				t.Errorf("%s, %s:\n%s", planned, name, text)
			}
		}
	}
}

// A sweep that starts from the beginning, as that of a new server does, does not visit the table for each of the rows
// that were swept and that no vacuum has removed from the index.
func TestSweepFromTheBeginningAfterOthers(t *testing.T) {
	s, pool := tableOfExpired(t)
	var at store.Cursor
	for last := 1000; last == 1000; {
		next, deleted, err := s.Sweep(t.Context(), at, 1000)
		if err != nil {
			t.Fatal(err)
		}
		at, last = next, deleted
	}
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	err := pool.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+s.sql.sweep, pgx.QueryExecModeSimpleProtocol,
		store.Cursor{}.ExpiresAt, 1000).Scan(&plan)
	if err != nil {
		t.Fatal(err)
	}
	if pages := plan[0].Plan.Hit + plan[0].Plan.Read; pages == 0 || pages > expiredRows/10 {
		t.Errorf("it visited %d pages after %d rows were swept", pages, expiredRows)
	}
}

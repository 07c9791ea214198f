package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// inTx runs f in a transaction of a fresh database that has the table.
func inTx(t *testing.T, f func(ctx context.Context, s *Store, tx pgx.Tx)) {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t))
	s, err := New(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f(t.Context(), s, tx)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func mustExec(t *testing.T, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func testClaim(s *Store, key string) (store.Token, []any) {
	c := store.Claim{ID: store.ID{Scope: "s", Key: key}, Token: store.NewToken(), RequestHash: "h", Procedure: "p", TTL: 1e12, Lease: 1e10}
	return c.Token, s.claimArgs(c)
}

// A leased completion is a HOT update, and so is a renewal: neither touches an index.
func TestCompletionAndRenewalAreHOT(t *testing.T) {
	inTx(t, func(ctx context.Context, s *Store, tx pgx.Tx) {
		token, args := testClaim(s, "k")
		mustExec(t, tx, s.sql.claim, args...)
		mustExec(t, tx, s.sql.renew, []string{"s"}, []string{"k"}, []pgtype.UUID{uuid(token)}, 10*time.Second)
		mustExec(t, tx, s.sql.complete, "s", "k", uuid(token), "completed", "OK", `{"id":"1"}`, []byte("reply"), 10*time.Second)
		var updated, hot int
		err := tx.QueryRow(ctx, `select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables where relname = $1`, s.table).
			Scan(&updated, &hot)
		if err != nil {
			t.Fatal(err)
		}
		if updated != 2 || hot != 2 {
			t.Errorf("%d updates, %d of them HOT; want 2 and 2", updated, hot)
		}
	})
}

// A claim, a completion and a take-over wait for the disk, whatever the connection's own setting.
func TestKeysCommitSynchronously(t *testing.T) {
	statements := map[string]func(s *Store) (sql string, args []any){
		"claim": func(s *Store) (string, []any) {
			_, args := testClaim(s, "new")
			return s.sql.claim, args
		},
		"completion": func(s *Store) (string, []any) {
			return s.sql.complete, []any{"s", "held", uuid(store.Token{1}), "completed", "OK", nil, []byte("reply"), time.Second}
		},
		"take-over": func(s *Store) (string, []any) {
			_, args := testClaim(s, "held")
			return s.sql.takeOver, append(args, uuid(store.Token{1}))
		},
	}
	inTx(t, func(ctx context.Context, s *Store, tx pgx.Tx) {
		for name, statement := range statements {
			for setting, want := range map[string]string{"off": "on", "local": "local", "remote_apply": "remote_apply"} {
				mustExec(t, tx, "savepoint before")
				mustExec(t, tx, "insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, lease_until, "+
					"expires_at) values ('s', 'held', 'p', 'in_progress', $1, 1, 'h', now(), now() + interval '1 hour')", uuid(store.Token{1}))
				mustExec(t, tx, "set local synchronous_commit = "+setting)
				sql, args := statement(s)
				tag, err := tx.Exec(ctx, sql, args...)
				if err != nil || tag.RowsAffected() != 1 {
					t.Fatalf("%s: %v, %v; want one row", name, tag, err)
				}
				var got string
				if err := tx.QueryRow(ctx, "show synchronous_commit").Scan(&got); err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("%s: synchronous_commit was %s and is %s, want %s", name, setting, got, want)
				}
				mustExec(t, tx, "rollback to savepoint before")
			}
		}
	})
}

// The claim of a key goes to it through the primary key, and a sweep through its index, in a table of any size.
func TestPlans(t *testing.T) {
	inTx(t, func(ctx context.Context, s *Store, tx pgx.Tx) {
		mustExec(t, tx, "set local enable_seqscan = off")
		for name, q := range map[string]struct {
			sql  string
			args []any
		}{
			"look":     {s.sql.look, []any{"s", "k"}},
			"complete": {s.sql.complete, []any{"s", "k", uuid(store.NewToken()), "completed", "OK", nil, []byte("r"), time.Second}},
			"sweep":    {s.sql.sweep, []any{"2020-01-01", 10}},
		} {
			rows, err := tx.Query(ctx, "explain "+q.sql, append([]any{pgx.QueryExecModeSimpleProtocol}, q.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range plan {
				if containsSeqScan(line) {
					t.Errorf("%s reads the whole table: %s", name, line)
				}
			}
		}
	})
}

func containsSeqScan(line string) bool { return strings.Contains(line, "Seq Scan") }

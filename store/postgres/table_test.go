package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// Any number of servers may migrate at once, in any schema and under any name.
func TestMigrate(t *testing.T) {
	for name, opts := range map[string][]postgres.Option{
		"as it comes":     nil,
		"a schema":        {postgres.WithSchema("billing")},
		"a table":         {postgres.WithTable("charge_keys")},
		"names to quote":  {postgres.WithSchema(`Billing "EU"; --`), postgres.WithTable(`Keys of "Tenants"`)},
		"a name in full":  {postgres.WithTable(strings.Repeat("t", 48))},
		"an unusual name": {postgres.WithTable("schlüssel {table}")},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, maxConns(16))
			var servers sync.WaitGroup
			for range 16 {
				servers.Go(func() {
					s, err := postgres.New(pool, opts...)
					if err == nil {
						err = s.Migrate(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			servers.Wait()
			for mode := range modes {
				s := newStore(t, mode, pool, opts...)
				c := newClaim()
				complete(t, win(t, s, c), done("reply"))
				if got := string(lose(t, s, c).Record.Reply); got != "reply" {
					t.Errorf("%s: found %q, want the reply", mode, got)
				}
			}
		})
	}
}

// The exported steps make the table without Migrate, which takes it as it is afterwards.
func TestMigrationsByAnotherTool(t *testing.T) {
	pool := newPool(t)
	steps, err := postgres.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		if step.Version != i+1 || step.Name == "" {
			t.Errorf("step %d is version %d, named %q", i, step.Version, step.Name)
		}
		exec(t, pool, step.SQL)
	}
	complete(t, win(t, newStore(t, "leased", pool), newClaim()), done("reply"))
}

// A missing table is said in words that help.
func TestMissingTable(t *testing.T) {
	for mode, makeStore := range modes {
		t.Run(mode, func(t *testing.T) {
			s, err := makeStore(newPool(t))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = s.Claim(t.Context(), newClaim())
			if err == nil || !strings.Contains(err.Error(), "Migrate") {
				t.Errorf("claim: %v, want a hint at Migrate", err)
			}
			drain(t, s)
		})
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	pool := newPool(t)
	for name, opt := range map[string]postgres.Option{
		"no table":         postgres.WithTable(""),
		"a long table":     postgres.WithTable(strings.Repeat("t", 49)),
		"no timeout":       postgres.WithTimeout(0),
		"negative timeout": postgres.WithTimeout(-time.Second),
	} {
		if _, err := postgres.New(pool, opt); err == nil {
			t.Errorf("%s: New took it", name)
		}
	}
	if _, err := postgres.New(nil); err == nil {
		t.Error("New took no pool")
	}
}

// The table is found wherever the connection's search_path points.
func TestSearchPath(t *testing.T) {
	url := newDatabase(t)
	exec(t, poolOn(t, url), "create schema elsewhere")
	pool := poolOn(t, url, setting("search_path", "elsewhere"))
	for mode := range modes {
		complete(t, win(t, newStore(t, mode, pool), newClaim()), done("reply"))
	}
	if got := queryOne[int](t, pool, "select count(*) from elsewhere.idempotency_keys"); got != 2 {
		t.Errorf("%d rows in the search path's table, want 2", got)
	}
}

// A column that is added while the server runs breaks none of its prepared statements.
func TestColumnAddedLive(t *testing.T) {
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			pool := newPool(t, maxConns(2))
			s := newStore(t, mode, pool)
			c := newClaim()
			complete(t, win(t, s, c), done("reply"))
			exec(t, pool, "alter table idempotency_keys add column note text, alter column note set default 'x'")
			lose(t, s, c)
			complete(t, win(t, s, newClaim()), done("reply"))
		})
	}
}

// The reply stands in the row as JSON too, wherever jsonb can hold it, in each exec mode.
func TestReadableForm(t *testing.T) {
	deep := strings.Repeat("[", 501) + strings.Repeat("]", 501)
	for execName, execMode := range execModes {
		for mode := range modes {
			t.Run(execName+"/"+mode, func(t *testing.T) {
				pool := newPool(t, inExecMode(execMode), maxConns(2))
				s := newStore(t, mode, pool)
				for name, test := range map[string]struct {
					written raw
					want    string // as jsonb writes it back; "" for null
				}{
					"an object":             {written: `{"b":1,"a":"é😀"}`, want: `{"a": "é😀", "b": 1}`},
					"an escaped quote":      {written: `{"a":"\"[[["}`, want: `{"a": "\"[[["}`},
					"literal backslash u":   {written: `{"a":"\\u0000"}`, want: `{"a": "\\u0000"}`},
					"U+0000":                {written: `{"a":"\u0000"}`},
					"a backslash and U+0":   {written: `{"a":"\\\u0000"}`},
					"not UTF-8":             {written: "\"\xff\""},
					"nested too deep":       {written: raw(deep)},
					"what fails to marshal": {},
				} {
					c := newClaim()
					r := done("exact")
					r.Readable = test.written
					complete(t, win(t, s, c), r)
					got := queryOne[*string](t, pool, "select response_body::text from idempotency_keys where key = $1", c.ID.Key)
					if (got == nil) != (test.want == "") || got != nil && *got != test.want {
						t.Errorf("%s: response_body is %v, want %q", name, deref(got), test.want)
					}
					if reply := string(lose(t, s, c).Record.Reply); reply != "exact" {
						t.Errorf("%s: the exact form is %q", name, reply)
					}
				}
			})
		}
	}
}

type raw string

func (r raw) MarshalJSON() ([]byte, error) {
	if r == "" {
		return nil, errors.New("cannot be written")
	}
	return []byte(r), nil
}

func deref(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// A row tells a person what became of a call.
func TestRow(t *testing.T) {
	pool := newPool(t)
	for mode := range modes {
		s := newStore(t, mode, pool)
		c := newClaim()
		complete(t, win(t, s, c), store.Record{State: store.Completed, Code: code.Code_NOT_FOUND, Reply: []byte("x"), Readable: raw(`{}`)})
		row, err := pool.Query(t.Context(), `select procedure, state, attempt, request_hash, code, lease_until is null,
			completed_at >= created_at, expires_at - created_at from idempotency_keys where scope = $1 and key = $2`, c.ID.Scope, c.ID.Key)
		if err != nil {
			t.Fatal(err)
		}
		type seen struct {
			Procedure, State string
			Attempt          int
			RequestHash      string
			Code             string
			NoLease, Ordered bool
			TTL              time.Duration
		}
		got, err := pgx.CollectExactlyOneRow(row, pgx.RowToStructByPos[seen])
		if err != nil {
			t.Fatal(err)
		}
		want := seen{c.Procedure, "completed", 1, c.RequestHash, "NOT_FOUND", true, true, c.TTL}
		if got != want {
			t.Errorf("%s: the row is %+v, want %+v", mode, got, want)
		}
	}
}

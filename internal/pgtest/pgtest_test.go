package pgtest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) { Main(m) }

// query returns the one value of a statement.
func query(t *testing.T, url, sql string, args ...any) string {
	t.Helper()
	var value string
	if err := Pool(t, url).QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// databaseName returns the name of the database that a connection string is for.
func databaseName(t *testing.T, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}

// isThere says whether the server that tests use has a database of that name.
func isThere(t *testing.T, name string) bool {
	t.Helper()
	at, _ := theBinary.serverURL(t)
	return query(t, at, "select count(*)::text from pg_database where datname = $1", name) == "1"
}

func TestEachDatabaseIsNewAndEmpty(t *testing.T) {
	t.Parallel()
	one, other := Database(t), Database(t)
	if _, err := Pool(t, one).Exec(t.Context(), "create table here ()"); err != nil {
		t.Fatal(err)
	}
	if got := query(t, other, "select coalesce(to_regclass('here')::text, 'not here')"); got != "not here" {
		t.Errorf("got %s", got)
	}
	const encoding = "select current_setting('server_encoding') || ' ' || datcollate from pg_database where datname = current_database()"
	if got := query(t, one, encoding); got != "UTF8 C" {
		t.Errorf("got %s", got)
	}
}

func TestDatabaseIsDroppedWhileSomebodyIsConnected(t *testing.T) {
	t.Parallel()
	var url string
	passed := t.Run("uses one", func(t *testing.T) {
		url = Database(t)
		if _, err := pgx.Connect(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	})
	if !passed {
		t.Fatal("the drop failed")
	}
	if name := databaseName(t, url); isThere(t, name) {
		t.Errorf("%s is still there", name)
	}
}

func TestDatabaseOfAFailedTestIsKept(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	var url string
	r.run(func() {
		url = Database(r)
		r.Error("as a test does")
	})
	name := databaseName(t, url)
	if !isThere(t, name) {
		t.Errorf("%s is gone", name)
	}
	if !strings.Contains(r.output(), keepVariable) && !strings.Contains(r.output(), name) {
		t.Errorf("no word of how to look into it: %s", r.output())
	}
	at, _ := theBinary.serverURL(t)
	if err := drop(t.Context(), at, name); err != nil {
		t.Error(err)
	}
}

func TestPoolOptionsAreApplied(t *testing.T) {
	t.Parallel()
	pool := Pool(t, Database(t), func(c *pgxpool.Config) { c.MaxConns = 1 }, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "set by an option"
	})
	var name string
	if err := pool.QueryRow(t.Context(), "show application_name").Scan(&name); err != nil || name != "set by an option" {
		t.Errorf("got %q, %v", name, err)
	}
	if got := pool.Stat().MaxConns(); got != 1 {
		t.Errorf("MaxConns is %d", got)
	}
}

func TestConnectionThatIsNotGivenBackFailsTheTest(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), Database(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t)
	closePool(r, pool, 0)
	if !r.Failed() || !strings.Contains(r.output(), "1 connections") {
		t.Errorf("failed %v: %s", r.Failed(), r.output())
	}
	conn.Release()
	pool.Close()
}

func TestServerWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	s := Server(t, map[string]string{"work_mem": "5MB"})
	got := query(t, s.URL("postgres"),
		"select concat_ws(' ', current_setting('fsync'), current_setting('synchronous_commit'), current_setting('work_mem'), "+
			"current_setting('max_connections'))")
	if got != "on on 5MB 200" {
		t.Errorf("got %s", got)
	}
}

func TestDirCanBeReachedAndIsRemoved(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("uses one", func(t *testing.T) {
		dir = Dir(t)
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", dir, err)
	}
}

func TestNameOfADatabaseFits(t *testing.T) {
	t.Run(strings.Repeat("A long name, with spaces; ", 5), func(t *testing.T) {
		name := newName(t)
		if len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("got %s", name)
		}
	})
}

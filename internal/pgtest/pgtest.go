// Package pgtest gives tests a real PostgreSQL: a private server for each test binary, and in it a database for each
// test. A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The server starts when the first test asks for it, with fsync off, and ends with the binary. Where the environment
// variable TEST_DATABASE_URL holds a connection string (a URL, or keywords and values), that server is used instead; its
// role must be allowed to create databases. With neither a server to start nor that variable, tests fail: they say what
// to install, and never skip.
//
// A test that failed keeps its database. To look into it, run the test with TEST_DATABASE_KEEP=1: the private server's
// data then outlives the binary, and the test says how to start the server again. Remove the folder afterwards.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

const (
	urlVariable  = "TEST_DATABASE_URL"
	keepVariable = "TEST_DATABASE_KEEP"

	// cleanupLimit bounds each step that undoes something after a test.
	cleanupLimit = 30 * time.Second
)

// Main runs the tests of m, stops the server that they used, and exits. It is for TestMain.
func Main(m *testing.M) {
	os.Exit(theBinary.main(m))
}

// Database returns the URL of a new, empty database for this test, in UTF-8 and the C locale. It is dropped
// when the test ends, whoever is still connected to it; or kept, if the test failed, which then says how to look into it.
func Database(t testing.TB) string {
	t.Helper()
	return theBinary.database(t)
}

// Pool returns a pool on a database, with options applied to its configuration, that has connected once. It is closed
// when the test ends; a connection not given back 30 seconds later fails the test.
func Pool(t testing.TB, url string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range options {
		option(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, pool, cleanupLimit) })
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	return pool
}

// closePool closes a pool, which waits for every connection to be given back, and fails the test where that takes longer
// than limit.
func closePool(t testing.TB, pool *pgxpool.Pool, limit time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Errorf("%d connections of a pool were not given back", pool.Stat().AcquiredConns())
	}
}

// Server starts a server of its own for a test or a benchmark, whatever TEST_DATABASE_URL says, and stops it at the end.
// Unlike the binary's it waits for the disk as a production server does, so TMPDIR must not be in memory where that
// matters. settings are PostgreSQL's, over the defaults of this package.
func Server(t testing.TB, settings map[string]string) *pglaunch.Server {
	t.Helper()
	s, err := pglaunch.Start(t.Context(), pglaunch.Config{Settings: withDefaults(settings)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Dir makes a folder that serves as pglaunch's Config.DataDir, and removes it at the end. The folders of t.TempDir do not
// serve: when root runs the tests, the server's user cannot enter them.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newName makes a name for a test's database that a person recognises, of at most 63 bytes.
func newName(t testing.TB) string {
	const most = 40
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '_'
		}
	}, t.Name())
	return fmt.Sprintf("t_%.*s_%s", most, readable, strings.ToLower(rand.Text()[:12]))
}

// create makes a database in the server at url.
func create(ctx context.Context, url, name string) error {
	return administer(ctx, url,
		"create database "+pgx.Identifier{name}.Sanitize()+" template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'")
}

// drop drops a database in the server at url, and ends the connections to it first.
func drop(ctx context.Context, url, name string) error {
	quoted := pgx.Identifier{name}.Sanitize()
	return administer(ctx, url,
		"alter database "+quoted+" allow_connections false",
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = '"+name+"' and backend_type = 'client backend'",
		"drop database "+quoted)
}

func administer(ctx context.Context, url string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := conn.Close(ctx); err == nil {
			err = closeErr
		}
	}()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

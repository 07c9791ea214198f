package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

// theBinary is the one thing that the tests of a binary share. It is a variable of the package because testing gives a
// test no way to what its TestMain has made.
var theBinary = binary{
	url:  os.Getenv(urlVariable),
	keep: os.Getenv(keepVariable) != "",
}

// binary is what one test binary uses.
type binary struct {
	url  string // of the server to use; empty asks for a private one
	keep bool   // the private server's data

	mu      sync.Mutex
	running bool // main is
	server  *pglaunch.Server
	err     error // of the start
}

// main runs tests and returns the code to exit with.
func (b *binary) main(m interface{ Run() int }) int {
	b.mu.Lock()
	b.running = true
	b.mu.Unlock()
	code := m.Run()
	if err := b.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func (b *binary) stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
	if b.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	err := b.server.Stop(ctx)
	b.server = nil
	return err
}

// serverURL returns the URL of a database to connect to for the making of others, and the private server, if it is one.
func (b *binary) serverURL(t testing.TB) (string, *pglaunch.Server) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		t.Fatal("pgtest: this package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	if b.url != "" {
		return b.url, nil
	}
	if b.server == nil && b.err == nil {
		b.server, b.err = b.start()
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.server.URL("postgres"), b.server
}

func (b *binary) start() (*pglaunch.Server, error) {
	if err := pglaunch.UnsetClientEnv(); err != nil {
		return nil, err
	}
	server, err := pglaunch.Start(context.Background(), pglaunch.Config{NoSync: true, Keep: b.keep, Settings: withDefaults(nil)})
	return server, withHint(err)
}

// withHint adds to pglaunch's hint what else tests can use.
func withHint(err error) error {
	if errors.Is(err, pglaunch.ErrNoBinaries) {
		return fmt.Errorf("%w\nor put the connection string of a server for tests into %s", err, urlVariable)
	}
	return err
}

// withDefaults returns settings over the defaults of a server for tests.
func withDefaults(settings map[string]string) map[string]string {
	all := map[string]string{"max_connections": "200"}
	maps.Copy(all, settings)
	return all
}

func (b *binary) database(t testing.TB) string {
	t.Helper()
	at, server := b.serverURL(t)
	name := newName(t)
	if err := create(t.Context(), at, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(howToLook(name, server, b.keep))
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
		defer cancel()
		if err := drop(ctx, at, name); err != nil {
			t.Error(err)
		}
	})
	database, err := withDatabase(at, name)
	if err != nil {
		t.Fatal(err)
	}
	return database
}

// howToLook tells the reader of a failed test where its database is.
func howToLook(name string, server *pglaunch.Server, keep bool) string {
	switch {
	case server == nil:
		return fmt.Sprintf("the test's database %s is kept in the server that %s names", name, urlVariable)
	case keep:
		return fmt.Sprintf("the test's database is kept in %s. When the tests have ended, start its server with\n  %s\nand look into it with\n  %s",
			server.DataDir(), server.Command(), server.PSQL(name))
	default:
		return fmt.Sprintf("the test's database ends with the tests' private server; to look into it, run the test again with %s=1", keepVariable)
	}
}

// withDatabase returns a connection string for another database of the server of connString.
func withDatabase(connString, name string) (string, error) {
	if !strings.HasPrefix(connString, "postgres://") && !strings.HasPrefix(connString, "postgresql://") {
		return connString + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(connString)
	if err != nil {
		return "", fmt.Errorf("%s is not a URL", urlVariable) // without err, which shows the password
	}
	// As text, since pgx and net/url read a plus in a query differently.
	parameters := slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(parameter string) bool {
		key, _, _ := strings.Cut(parameter, "=")
		return key == "dbname" || key == "database"
	})
	u.RawQuery = strings.Join(parameters, "&")
	u.Path, u.RawPath = "/"+name, ""
	return u.String(), nil
}

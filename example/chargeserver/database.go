package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// launcher is pglaunch.Start.
type launcher func(context.Context, pglaunch.Config) (*pglaunch.Server, error)

const (
	// defaultDataDir is the name of the folder for the private server's data.
	defaultDataDir = "connect-idempotency-example"
	// privateDatabase is the one that a new server has.
	privateDatabase = "postgres"
	// privateConnections is how many calls a private server works on at once: tok_slow holds a connection for its whole
	// time in transactional mode.
	privateConnections = 32
	// databaseStopTimeout bounds the end of the private server.
	databaseStopTimeout = 10 * time.Second
)

// backend is where charges and keys live.
type backend struct {
	store  store.Store
	ledger ledger
	about  string          // for people
	psql   string          // a command line that opens psql on the tables; "" where there are none
	warn   string          // what people must know before they rely on it; "" where nothing
	ended  <-chan struct{} // closed when a private server ends; nil where there is none
	pool   *pgxpool.Pool   // may be nil
	server *pglaunch.Server
}

// openBackend opens the database that c names, else a private server, else, where none is installed, memory.
func openBackend(ctx context.Context, c config, launch launcher, log *slog.Logger) (*backend, error) {
	if c.databaseURL != "" {
		return openNamed(ctx, c, log)
	}
	dir := c.dataDir
	if dir == "" {
		var err error
		if dir, err = pglaunch.DefaultDataDir(defaultDataDir); err != nil {
			return nil, fmt.Errorf("no place for the private database's data; name one with -data-dir: %w", err)
		}
	}
	server, err := launch(ctx, pglaunch.Config{DataDir: dir})
	switch {
	case errors.Is(err, pglaunch.ErrNoBinaries):
		return openMemory(c, err), nil
	case errors.Is(err, pglaunch.ErrInUse):
		return nil, fmt.Errorf("%w: is another chargeserver running? Stop it, or use another -data-dir", err)
	case err != nil:
		return nil, fmt.Errorf("the private database does not start: %w", err)
	}
	b, err := openPrivate(ctx, c, server, log)
	if err != nil {
		return nil, errors.Join(err, stopServer(ctx, server))
	}
	return b, nil
}

// openPrivate uses a server of our own.
func openPrivate(ctx context.Context, c config, server *pglaunch.Server, log *slog.Logger) (*backend, error) {
	// Variables such as PGOPTIONS speak of somebody else's server.
	if err := pglaunch.UnsetClientEnv(); err != nil {
		return nil, err
	}
	poolConfig, err := pgxpool.ParseConfig(server.URL(privateDatabase))
	if err != nil {
		return nil, err
	}
	poolConfig.MaxConns = privateConnections
	b, err := openPostgres(ctx, c.mode, poolConfig, log)
	if err != nil {
		return nil, err
	}
	b.server, b.ended = server, server.Done()
	b.about = fmt.Sprintf("a private PostgreSQL %s, data in %s", server.Version(), server.DataDir())
	b.psql = server.PSQL(privateDatabase)
	return b, nil
}

// openNamed uses the database of a connection string.
func openNamed(ctx context.Context, c config, log *slog.Logger) (*backend, error) {
	poolConfig, err := pgxpool.ParseConfig(c.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.databaseSource, err)
	}
	b, err := openPostgres(ctx, c.mode, poolConfig, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.databaseSource, err)
	}
	at := poolConfig.ConnConfig
	b.about = "the PostgreSQL database of " + c.databaseSource
	b.psql = fmt.Sprintf("psql -h %s -p %d -U %s -d %s", quote(at.Host), at.Port, quote(at.User), quote(at.Database))
	if c.given["data-dir"] {
		b.warn = c.databaseSource + " names the database to use, so -data-dir is not used."
	}
	return b, nil
}

// openPostgres makes the pool, the store of the mode, and the tables.
func openPostgres(ctx context.Context, m mode, c *pgxpool.Config, log *slog.Logger) (_ *backend, err error) {
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	newStore := postgres.NewTransactional
	if m == leased {
		newStore = postgres.New
	}
	st, err := newStore(pool, postgres.WithLogger(log))
	if err != nil {
		return nil, err
	}
	if err := st.Migrate(ctx); err != nil {
		return nil, err
	}
	l, err := newPostgresLedger(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &backend{store: st, ledger: l, pool: pool}, nil
}

// openMemory uses this process's memory, since there is no database.
func openMemory(c config, why error) *backend {
	warn := "NOTHING IS KEPT: charges and keys are in memory, and end with this process.\n\n" + why.Error()
	if c.given["mode"] {
		warn += "\n\n-mode " + string(c.mode) + " IS NOT USED: it says how PostgreSQL keeps keys."
	}
	return &backend{store: memory.New(), ledger: &memoryLedger{}, about: "this process's memory, and no database", warn: warn}
}

// close ends what openBackend began, once no call runs any more.
func (b *backend) close(ctx context.Context) error {
	if b.pool != nil {
		b.pool.Close()
	}
	if b.server == nil {
		return nil
	}
	return stopServer(ctx, b.server)
}

func stopServer(ctx context.Context, server *pglaunch.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseStopTimeout)
	defer cancel()
	return server.Stop(ctx)
}

// quote makes one word of s, for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

const (
	databaseName  = "postgres" // the one that a new server has
	databaseLimit = 30 * time.Second
)

// database is a PostgreSQL that is killed and started again.
type database struct {
	dir    string
	bridge *bridge

	mu     sync.Mutex // held while it is away
	server *pglaunch.Server
}

func startDatabase(ctx context.Context, dir string) (*database, error) {
	b, err := newBridge(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	d := &database{dir: filepath.Join(dir, "database"), bridge: b}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return d, nil
}

// start starts the server. It does not wait for the disk: those that are killed are processes, and what they have written
// outlives them. Only a page may have been written by half.
func (d *database) start(ctx context.Context) error {
	server, err := pglaunch.Start(ctx, pglaunch.Config{
		DataDir: d.dir, NoSync: true, Settings: map[string]string{"full_page_writes": "on"},
	})
	if err != nil {
		return err
	}
	config, err := pgconn.ParseConfig(server.URL(databaseName))
	if err != nil {
		return err
	}
	_, socket := pgconn.NetworkAddress(config.Host, config.Port)
	d.bridge.socket.Store(&socket)
	d.server = server
	return nil
}

// url is for the kit's own connections, which no fault is between.
func (d *database) url() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server.URL(databaseName)
}

// Crash kills the server, and starts it again once the time away is over.
func (d *database) Crash(ctx context.Context, away time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseLimit+away)
	defer cancel()
	if err := d.server.Kill(ctx); err != nil {
		return fmt.Errorf("kill the database: %w", err)
	}
	<-time.After(away)
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start the database again: %w", err)
	}
	return nil
}

// Terminate ends all connections to the server but the kit's own, from the server's side.
func (d *database) Terminate(ctx context.Context) error {
	return d.withConn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where backend_type = 'client backend' and pid <> pg_backend_pid()`)
		return err
	})
}

// withConn calls f with a connection of the kit's own. The database stays up meanwhile.
func (d *database) withConn(ctx context.Context, f func(*pgx.Conn) error) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	conn, err := pgx.Connect(ctx, d.server.URL(databaseName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return f(conn)
}

// account is the user that the server runs as.
func (d *database) account() (*syscall.Credential, error) {
	info, err := os.Stat(d.server.DataDir())
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("whose the database's files are cannot be told on this system")
	}
	return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}, nil
}

func (d *database) stop(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.server.Kill(ctx), d.bridge.close())
}

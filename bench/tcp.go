package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

// tcpDatabase is a private PostgreSQL that listens on the loopback interface too. The launcher's servers never do, so
// this one is started with the launcher's own command line and two settings more.
type tcpDatabase struct {
	dir        string
	shell      *exec.Cmd
	stdin      io.Closer
	unix, loop string // URLs of the database postgres
}

// script runs a server until its standard input is closed, which the end of this process does too.
const script = `%s -c listen_addresses=127.0.0.1 -c port=%d -c hba_file=%s & server=$!; read -r line; kill -TERM $server; wait $server || [ $? -eq 143 ]`

// access asks whoever comes over the loopback interface for the password, since others can reach it.
const access = "local all postgres trust\nhost all postgres 127.0.0.1/32 scram-sha-256\n"

func startTCP(ctx context.Context) (_ *tcpDatabase, err error) {
	d := new(tcpDatabase)
	if d.dir, err = os.MkdirTemp("/tmp", "bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // root's server runs as another user, and has to get in
		return nil, err
	}
	server, err := pglaunch.Start(ctx, pglaunch.Config{DataDir: d.dir})
	if err != nil {
		return nil, err
	}
	command, at, password := server.Command(), server.URL("postgres"), rand.Text()
	err = onConn(ctx, at, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "alter role postgres password '"+password+"'") // letters and digits
		return err
	})
	if err := errors.Join(err, server.Stop(ctx)); err != nil {
		return nil, err
	}
	err = d.start(ctx, command, at, password)
	return d, err
}

func (d *tcpDatabase) start(ctx context.Context, command, at, password string) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	if d.unix, d.loop, err = onPort(at, port, password); err != nil {
		return err
	}
	hba := filepath.Join(d.dir, "pg_hba.conf")
	if err := os.WriteFile(hba, []byte(access), 0o644); err != nil { //nolint:gosec // root's server runs as another user
		return err
	}
	//nolint:gosec // the line is the launcher's
	d.shell = exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", fmt.Sprintf(script, command, port, hba))
	if d.stdin, err = d.shell.StdinPipe(); err != nil {
		return err
	}
	if err := d.shell.Start(); err != nil {
		return err
	}
	if err := awaitServer(ctx, d.loop); err != nil {
		return errors.Join(err, d.halt())
	}
	return nil
}

// freePort is a port that nobody listens on at this moment.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // nothing was sent
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

// onPort turns the URL of a socket into that of the same server's socket on another port, and of its loopback address.
func onPort(at string, port int, password string) (unix, loop string, err error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", "", err
	}
	query := u.Query()
	query.Set("port", strconv.Itoa(port))
	u.RawQuery = query.Encode()
	unix = u.String()
	query.Set("host", "127.0.0.1")
	u.User = url.UserPassword(u.User.Username(), password)
	u.RawQuery = query.Encode()
	return unix, u.String(), nil
}

// startingUp is the SQLSTATE cannot_connect_now.
const startingUp = "57P03"

// awaitServer returns once the server accepts connections.
func awaitServer(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := onConn(ctx, at, func(conn *pgx.Conn) error { return conn.Ping(ctx) })
		if refusal, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && refusal.Code != startingUp {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server on the loopback interface does not answer: %w", err)
		case <-ticker.C:
		}
	}
}

func (d *tcpDatabase) halt() error { return errors.Join(d.stdin.Close(), d.shell.Wait()) }

// stop ends the server and removes its data. Its connections must be closed before.
func (d *tcpDatabase) stop() error { return errors.Join(d.halt(), os.RemoveAll(d.dir)) }

package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const bouncerLimit = 10 * time.Second

// ErrNoBouncer says that PgBouncer is not installed.
var ErrNoBouncer = errors.New("no pgbouncer in PATH or /usr/sbin (Debian: apt-get install pgbouncer)")

// FindBouncer returns PgBouncer's program.
func FindBouncer() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil {
		return path, nil
	}
	return "", ErrNoBouncer
}

// bouncer is a PgBouncer that pools transactions.
type bouncer struct {
	*process

	addr string
}

const bouncerConfig = `[databases]
%[1]s = host=%[2]s port=5432 dbname=%[1]s user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[3]d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 12
max_client_conn = 500
server_login_retry = 0.1
query_wait_timeout = 10
`

// startBouncer starts PgBouncer in front of the database, as the user that the database runs as: it refuses to be root,
// and that user may enter the socket's folder.
func startBouncer(ctx context.Context, program, dir string, d *database) (_ *bouncer, err error) {
	as, err := d.account()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		as = nil // it is ourselves
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	socketDir := filepath.Dir(*d.bridge.socket.Load())
	text := fmt.Sprintf(bouncerConfig, databaseName, socketDir, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil { //nolint:gosec // no secret, and for another user to read
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "pgbouncer.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()                    //nolint:errcheck // the process has a descriptor of its own
	cmd := exec.Command(program, config) //nolint:noctx // it outlives the start
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	p, err := startProcess(cmd, as)
	if err != nil {
		return nil, err
	}
	b := &bouncer{process: p, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if err := b.awaitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (its log is %s)", err, log.Name()), b.kill())
	}
	return b, nil
}

func (b *bouncer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bouncerLimit)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.done:
			return fmt.Errorf("pgbouncer ended: %w", b.err)
		case <-ctx.Done():
			return fmt.Errorf("pgbouncer does not get ready: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends it at once.
func (b *bouncer) stop() error {
	if b.ended() {
		return fmt.Errorf("pgbouncer ended by itself: %w", b.err)
	}
	err := b.signal(syscall.SIGTERM)
	<-b.done
	return err
}

// freePort returns a port that was free a moment ago.
func freePort(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("no TCP address: %v", listener.Addr()), listener.Close())
	}
	return addr.Port, listener.Close()
}

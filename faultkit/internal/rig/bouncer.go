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
	"sync"
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

// bouncer is a PgBouncer that pools transactions. One that ends by itself is started again, as a supervisor does it:
// 1.18, which is Debian 12's, ends with "bad client state" when a client goes at the moment its cancel request is sent.
type bouncer struct {
	program, config, log string
	as                   *syscall.Credential
	addr                 string
	watching             sync.WaitGroup

	mu      sync.Mutex
	process *process
	closed  bool
	deaths  int
	failed  error // to start again
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
func startBouncer(ctx context.Context, program, dir string, d *database) (*bouncer, error) {
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
	b := &bouncer{
		program: program, config: filepath.Join(dir, "pgbouncer.ini"), log: filepath.Join(dir, "pgbouncer.log"),
		as: as, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}
	text := fmt.Sprintf(bouncerConfig, databaseName, filepath.Dir(*d.bridge.socket.Load()), port)
	if err := os.WriteFile(b.config, []byte(text), 0o644); err != nil { //nolint:gosec // no secret, and for another user to read
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	b.watching.Go(func() { b.watch(context.WithoutCancel(ctx)) })
	return b, nil
}

func (b *bouncer) start(ctx context.Context) error {
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                        //nolint:errcheck // the process has a descriptor of its own
	cmd := exec.Command(b.program, b.config) //nolint:noctx // it outlives the start
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	if b.process, err = startProcess(cmd, b.as); err != nil {
		return err
	}
	if err := b.awaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w (its log is %s)", err, b.log), b.process.kill())
	}
	return nil
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
		case <-b.process.done:
			return fmt.Errorf("pgbouncer ended: %w", b.process.err)
		case <-ctx.Done():
			return fmt.Errorf("pgbouncer does not get ready: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watch starts it again, time after time, until it is closed.
func (b *bouncer) watch(ctx context.Context) {
	for again := true; again; {
		<-b.process.done
		again = b.restart(ctx)
	}
}

func (b *bouncer) restart(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.deaths++
	b.failed = b.start(ctx)
	return b.failed == nil
}

// close ends it at once, and returns how often it had ended by itself.
func (b *bouncer) close() (deaths int, err error) {
	b.mu.Lock()
	b.closed = true
	err = errors.Join(b.failed, b.process.kill())
	b.mu.Unlock()
	b.watching.Wait()
	return b.deaths, err
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

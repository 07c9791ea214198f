//go:build pgbouncer

package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

// Both modes pass the suite through a proxy that gives each transaction whichever connection is free, in the exec modes
// that need nothing of the connection they ran on before. Fewer connections stand behind the proxy than before it, so
// that they do change hands.
func TestConformanceThroughPgBouncer(t *testing.T) {
	for _, execName := range []string{"cache_describe", "exec", "simple_protocol"} {
		for mode := range modes {
			t.Run(execName+"/"+mode, func(t *testing.T) {
				conform(t, throughPgBouncer(t, pgtest.Database(t), 6, inExecMode(execModes[execName]), maxConns(12)), mode)
			})
		}
	}
}

// throughPgBouncer starts a PgBouncer in transaction pooling, with at most size connections to the database at url, and
// returns a pool on it. It ends with the test.
func throughPgBouncer(t *testing.T, url string, size int, opts ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	database, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	as := bouncerAccount(t, database.Host)
	dir := filepath.Join(pgtest.Dir(t), "bouncer")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(bouncerConfig(database, dir, size)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, config} {
		if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	startBouncer(t, as, config, filepath.Join(dir, ".s.PGSQL.6432"))
	return pgtest.Pool(t, fmt.Sprintf("postgres:///%s?host=%s&port=6432&user=any&sslmode=disable", database.Database, dir), opts...)
}

// bouncerConfig lets everybody who reaches the socket in as the database's own user.
func bouncerConfig(c *pgx.ConnConfig, dir string, size int) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	database := fmt.Sprintf("* = host=%s port=%d user=%s", quote(c.Host), c.Port, quote(c.User))
	if c.Password != "" {
		database += " password=" + quote(c.Password)
	}
	return strings.Join([]string{
		"[databases]",
		database,
		"[pgbouncer]",
		"listen_addr =",
		"listen_port = 6432",
		"unix_socket_dir = " + dir,
		"unix_socket_mode = 0700",
		"auth_type = any",
		"pool_mode = transaction",
		"default_pool_size = " + strconv.Itoa(size),
		"",
	}, "\n")
}

// bouncerAccount is who PgBouncer runs as: root it refuses to be, and it has to reach the database's socket.
func bouncerAccount(t *testing.T, host string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return &syscall.Credential{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid()), NoSetGroups: true}
	}
	if filepath.IsAbs(host) {
		info, err := os.Stat(host)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		return &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(nobody.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func startBouncer(t *testing.T, as *syscall.Credential, config, socket string) {
	t.Helper()
	program, err := findBouncer()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // read once the process has ended
	cmd := osexec.Command(program, config)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(config), &log, &log
	// A killed test leaves no process behind. The kernel takes the end of the thread that forked for the parent's.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
		if t.Failed() {
			t.Logf("pgbouncer said:\n%s", log.String())
		}
	})
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			return
		}
		select {
		case <-ended:
			t.Fatalf("pgbouncer has ended: %v", cmd.ProcessState)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not get ready: %v", err)
		}
	}
}

// findBouncer finds the program, which Debian keeps where not everybody's PATH leads.
func findBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := osexec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", errors.New("PgBouncer is not installed, and is needed by this test: apt-get install pgbouncer")
}

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pglaunch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// childVariable makes the test binary a process that starts a server, to be treated badly from outside.
const childVariable = "PGLAUNCH_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	defer func() {
		if err := os.RemoveAll(shared); err != nil {
			panic(err)
		}
	}()
	return m.Run()
}

// shared is the data folder of the tests that do not mind what the one before left in it, and are not parallel: it
// costs a second to make one. It is empty until sharedDir makes it. Inside is a name that shells, connection strings and
// PostgreSQL's lists each have to be told about.
var shared string

func sharedDir(t *testing.T) string {
	t.Helper()
	if shared == "" {
		shared = makeDir(t)
	}
	return filepath.Join(shared, `it's "here"`)
}

// newDir makes a folder that the server's user can reach, which t.TempDir's are not when root runs the tests.
func newDir(t *testing.T) string {
	t.Helper()
	dir := makeDir(t)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func makeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglaunchtest-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mustStart starts a server and stops it when the test ends.
func mustStart(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !s.process.ended() {
			mustStop(t, s)
		}
	})
	return s
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// query runs statements on a connection of its own and returns the one value of the last.
func query(t *testing.T, url string, sql ...string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	last := len(sql) - 1
	for _, statement := range sql[:last] {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var value string
	if err := conn.QueryRow(t.Context(), sql[last]).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// wantQuery fails the test unless the statement returns want.
func wantQuery(t *testing.T, s *Server, sql, want string) {
	t.Helper()
	if got := query(t, s.URL("postgres"), sql); got != want {
		t.Errorf("%s: got %q, want %q", sql, got, want)
	}
}

// exists says whether there is a file or folder of that name.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// write writes a file that everybody may read and run.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
}

// fakeBinaries makes a folder of programs that say they are of a version; postgres goes on with script.
func fakeBinaries(t *testing.T, dir, version, script string) string {
	t.Helper()
	write(t, filepath.Join(dir, "initdb"), "#!/bin/sh\nexit 0\n")
	write(t, filepath.Join(dir, "pg_ctl"), "#!/bin/sh\nexit 1\n")
	write(t, filepath.Join(dir, "postgres"), "#!/bin/sh\n"+
		"[ \"$1\" = --version ] && { echo 'postgres (PostgreSQL) "+version+"'; exit; }\n"+script+"\n")
	return dir
}

// shell runs a command line as a person would paste it, and returns what it prints.
func shell(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

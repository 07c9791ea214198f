//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pglaunch

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// report is what the child says, a line each time.
type report struct {
	Event  string // started, interrupted, stopped
	PID    int    // the server's
	Folder string
	URL    string
}

// child starts a server in dir, says so, and then takes no notice of ^C. It stops the server when its input ends.
func child(dir string) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	s, err := Start(context.Background(), Config{DataDir: dir, NoSync: true})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	say := func(event string) error {
		return out.Encode(report{Event: event, PID: s.process.cmd.Process.Pid, Folder: s.folder.path, URL: s.URL("postgres")})
	}
	if err := say("started"); err != nil {
		return err
	}
	ended := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	for {
		select {
		case <-interrupts:
			if err := say("interrupted"); err != nil {
				return err
			}
		case err := <-ended:
			if err != nil {
				return err
			}
			if err := s.Stop(context.Background()); err != nil {
				return err
			}
			return say("stopped")
		}
	}
}

// running is a child process, in a process group of its own as a shell's jobs are.
type running struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

func startChild(t *testing.T, dir string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &running{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
}

// wait returns the child's next report.
func (r *running) wait(t *testing.T, event string) report {
	t.Helper()
	if !r.lines.Scan() {
		t.Fatalf("the child ended before it had %s: %v", event, r.lines.Err())
	}
	var got report
	if err := json.Unmarshal(r.lines.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Event != event {
		t.Fatalf("the child %s, before it had %s", got.Event, event)
	}
	return got
}

func TestInterruptOfTheGroupLeavesTheServerToItsParent(t *testing.T) {
	r := startChild(t, sharedDir(t))
	started := r.wait(t, "started")
	group, err := syscall.Getpgid(started.PID)
	if err != nil {
		t.Fatal(err)
	}
	if group == r.cmd.Process.Pid {
		t.Error("the server is in its parent's process group")
	}
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r.wait(t, "interrupted")
	if got := query(t, started.URL, "select 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
	if err := r.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	r.wait(t, "stopped")
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStartAfterTheParentWasKilled(t *testing.T) {
	dir := sharedDir(t)
	r := startChild(t, dir)
	started := r.wait(t, "started")
	query(t, started.URL, "drop table if exists kept", "create table kept as select 'committed' as said", "select ''")
	r.kill(t)
	s := mustStart(t, Config{DataDir: dir, NoSync: true})
	wantQuery(t, s, "select said from kept", "committed")
}

// kill kills the child, and nothing else, with SIGKILL.
func (r *running) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
}

func TestStartEndsAServerWithoutParent(t *testing.T) {
	dir := sharedDir(t)
	orphan := mustStart(t, Config{DataDir: dir, NoSync: true})
	query(t, orphan.URL("postgres"), "drop table if exists kept", "create table kept as select 'committed' as said", "select ''")
	// What is left where the kernel does not end it: the server, and nobody who holds the folder.
	if err := unlock(orphan.folder.lock); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, Config{DataDir: dir, NoSync: true})
	<-orphan.Done()
	wantQuery(t, s, "select said from kept", "committed")
}

func TestStartWhereAnotherProcessHasTheKilledServersID(t *testing.T) {
	dir := sharedDir(t)
	s := mustStart(t, Config{DataDir: dir, NoSync: true})
	killed := s.process.cmd.Process.Pid
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := startProcess(task{as: s.as, dir: "/"}.command(ctx, "/bin/sleep", "3600"))
	if err != nil {
		t.Fatal(err)
	}
	rewritePID(t, filepath.Join(s.DataDir(), pidFile), killed, p.cmd.Process.Pid)
	s = mustStart(t, Config{DataDir: dir, NoSync: true})
	wantQuery(t, s, "select 'recovered'", "recovered")
	if p.ended() {
		t.Error("the other process was ended")
	}
	cancel()
	<-p.done
}

// awaitLock returns once no process of the server in dir lives.
func awaitLock(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	lock, err := (&folder{path: dir}).awaitServerLock(ctx)
	if err != nil {
		t.Fatalf("the server lives on: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

// rewritePID puts another process's id into a postmaster.pid.
func rewritePID(t *testing.T, name string, from, to int) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rest, found := strings.CutPrefix(string(content), strconv.Itoa(from)+"\n")
	if !found {
		t.Fatalf("not of process %d:\n%s", from, content)
	}
	if err := os.WriteFile(name, []byte(strconv.Itoa(to)+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
}

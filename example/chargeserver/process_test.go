package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

// process is the program itself, in a process group of its own as a shell's jobs are.
type process struct {
	caller
	cmd    *exec.Cmd
	stdout string // what it had printed once it listened
	stderr *tail
}

// tail keeps what is written to it, and says when a text has come.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	came chan struct{}
}

func newTail(want string) *tail { return &tail{want: want, came: make(chan struct{})} }

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := bytes.Contains(l.text.Bytes(), []byte(l.want))
	l.text.Write(p)
	if !had && bytes.Contains(l.text.Bytes(), []byte(l.want)) {
		close(l.came)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newProgram prepares to run the program with env.
func newProgram(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = slices.Concat(env, []string{programVariable + "=1"})
	return cmd
}

// nothingConfigured is an environment in which all that PostgreSQL's clients and servers read leads astray.
func nothingConfigured(t *testing.T) []string {
	t.Helper()
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"PGHOST=/nowhere", "PGPORT=1", "PGUSER=nobody", "PGPASSWORD=wrong", "PGDATABASE=none", "PGSERVICE=none",
		"PGSSLMODE=verify-full", "PGTARGETSESSIONATTRS=standby", "PGOPTIONS=-c default_transaction_read_only=on",
		"PGDATA=/nowhere", "PGAPPNAME=hostile", "PGCONNECT_TIMEOUT=1",
	}
}

// startProcess starts the program on a free port with its data in dir, and returns once it listens.
func startProcess(t *testing.T, dir string, flags ...string) *process {
	t.Helper()
	p := &process{stderr: newTail("stopping")}
	p.cmd = newProgram(t, nothingConfigured(t), append([]string{"-addr", "localhost:0", "-data-dir", dir}, flags...)...)
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test failed before the process ended
			t.Log(errors.Join(p.cmd.Process.Kill(), p.cmd.Wait()))
		}
		if t.Failed() {
			t.Log(p.stderr)
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "^C stops") {
		p.stdout += lines.Text() + "\n"
	}
	if !strings.Contains(p.stdout, listens) {
		t.Fatalf("it does not listen: %v\n%s", lines.Err(), p.stdout)
	}
	p.caller = newCaller(t, urlIn(t, p.stdout))
	return p
}

// interrupt is ^C at the terminal, which reaches the whole group.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// mustEndWell waits for the end of the process, which must be with exit code 0.
func (p *process) mustEndWell(t *testing.T) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// kill kills the process, and nothing else.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.mustEndBy(t, syscall.SIGKILL)
}

func (p *process) mustEndBy(t *testing.T, sig syscall.Signal) {
	t.Helper()
	err := p.cmd.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != sig {
		t.Fatalf("it ended with %v, want the signal %v", err, sig)
	}
}

func TestProgramKeepsChargesAndKeysWhenKilled(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startProcess(t, dir)
	mustContain(t, p.stdout, "a private PostgreSQL", dir, "transactional:", "buf curl", "psql")
	id, _ := p.mustCharge(t, "k", "tok_ok")
	p.kill(t)

	p = startProcess(t, dir, "-mode", "leased")
	p.wantCharges(t, id)
	if again, replayed := p.mustCharge(t, "k", "tok_ok"); again != id || !replayed {
		t.Errorf("got %s, a replay: %v; want a replay of %s", again, replayed, id)
	}
	p.wantCharges(t, id)
	p.interrupt(t)
	p.mustEndWell(t)
}

// startSlow calls tok_slow twice with one key, and returns once one of the two runs: the other one has been told so.
func (p *process) startSlow(t *testing.T) (first <-chan error) {
	t.Helper()
	answers := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := p.CreateCharge(t.Context(), keyed("k", charge("tok_slow")))
			answers <- err
		}()
	}
	wantError(t, receive(t, answers, "the second call's refusal"), connect.CodeAborted, idempotency.ReasonKeyInProgress)
	return answers
}

func TestProgramKilledInACallLeavesNothingOfIt(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startProcess(t, dir)
	first := p.startSlow(t)
	p.kill(t)
	wantError(t, receive(t, first, "the first call's error"), connect.CodeUnavailable, "")

	p = startProcess(t, dir)
	p.wantCharges(t)
	id, replayed := p.mustCharge(t, "k", "tok_ok") // another request: the key is free
	if replayed {
		t.Error("it was a replay")
	}
	p.wantCharges(t, id)
	p.interrupt(t)
	p.mustEndWell(t)
}

func TestProgramStopsOnInterrupt(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startProcess(t, dir)
	id, _ := p.mustCharge(t, "k", "tok_ok")
	p.interrupt(t)
	p.mustEndWell(t)
	mustContain(t, p.stderr.String(), "outcome=executed", "key_digest=", "stopping")

	p = startProcess(t, dir)
	p.wantCharges(t, id)
	p.interrupt(t)
	p.mustEndWell(t)
}

func TestProgramStopsOnSIGTERM(t *testing.T) {
	t.Parallel()
	p := startProcess(t, pgtest.Dir(t))
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.mustEndWell(t)
}

func TestProgramEndsAtOnceOnASecondInterrupt(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startProcess(t, dir)
	p.startSlow(t)
	p.interrupt(t)
	receive(t, p.stderr.came, "the first interrupt")
	p.interrupt(t)
	p.mustEndBy(t, syscall.SIGINT)

	p = startProcess(t, dir)
	p.wantCharges(t)
	p.interrupt(t)
	p.mustEndWell(t)
}

func TestProgramPrintsALineForPSQL(t *testing.T) {
	t.Parallel()
	p := startProcess(t, pgtest.Dir(t))
	id, _ := p.mustCharge(t, "order-1", "tok_ok")
	_, line, ok := strings.Cut(p.stdout, "Look into the tables:\n\n")
	if !ok {
		t.Fatalf("no line for psql in:\n%s", p.stdout)
	}
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	mustContain(t, string(out), id, "order-1", "completed", "Coffee beans")
	p.interrupt(t)
	p.mustEndWell(t)
}

// exitCode runs the program to its end.
func exitCode(t *testing.T, env []string, flags ...string) (code int, stderr string) {
	t.Helper()
	cmd := newProgram(t, env, flags...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &out
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func TestProgramRefusesAFolderWithoutBinaries(t *testing.T) {
	t.Parallel()
	env := append(nothingConfigured(t), "CONNECT_IDEMPOTENCY_PG_BIN=/nowhere")
	code, stderr := exitCode(t, env, "-addr", "localhost:0", "-data-dir", pgtest.Dir(t))
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	mustContain(t, stderr, "/nowhere")
}

func TestProgramExitsWithTwoWhereAFlagCannotBe(t *testing.T) {
	t.Parallel()
	code, stderr := exitCode(t, nil, "-mode", "both")
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	mustContain(t, stderr, "Usage of chargeserver:")
}

func TestProgramExitsWithZeroAfterHelp(t *testing.T) {
	t.Parallel()
	if code, stderr := exitCode(t, nil, "-help"); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, stderr)
	}
}

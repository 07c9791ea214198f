package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// immediateLimit is how long a server gets for an immediate shutdown: five seconds after one begins, PostgreSQL itself
// kills those of its processes that are left.
const immediateLimit = 7 * time.Second

// task is how PostgreSQL's programs are run: as whom, where, with what files.
type task struct {
	as      account
	dir     string
	log     *os.File // for what they print; nil leaves it to the caller
	inherit *os.File // kept open by the program and all it starts; may be nil
}

// command prepares a program that dies with this process, and with ctx.
func (t task) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.dir
	cmd.Env = environment()
	cmd.SysProcAttr = childAttributes(t.as, syscall.SIGKILL)
	if t.log != nil {
		cmd.Stdout, cmd.Stderr = t.log, t.log
	}
	if t.inherit != nil {
		cmd.ExtraFiles = []*os.File{t.inherit}
	}
	return cmd
}

// environment returns what PostgreSQL's programs see of ours: no PGDATA, PGPORT or PGOPTIONS, no locale that is not
// installed, and none of our secrets, which anybody connected could read back.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"} // macOS's postgres does not start without a locale
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// run runs a command that was made with ctx to its end.
func run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	<-p.done
	if err = p.err; err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

// startServer starts postgres, which outlives every context.
func (t task) startServer(name string, args ...string) (*process, error) {
	cmd := t.command(context.Background(), name, args...)
	// On SIGQUIT it takes its children with it and leaves no processes, files or shared memory behind.
	cmd.SysProcAttr = childAttributes(t.as, syscall.SIGQUIT)
	return startProcess(cmd)
}

// process is a child process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of its end; read it after done
}

// startProcess starts cmd from a thread that lives as long as the child: the kernel takes the end of the thread that
// forked for the death of the parent.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// ended says whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure describes the end of a process that should not have ended.
func (p *process) failure() error {
	if p.err != nil {
		return p.err
	}
	return errors.New(p.cmd.ProcessState.String())
}

// halt ends a server with sig, and returns when it has ended. When ctx ends first it uses force, and returns ctx's error.
func (p *process) halt(ctx context.Context, sig syscall.Signal) error {
	if err := p.signal(sig); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	err := fmt.Errorf("the server had to be forced to end: %w", context.Cause(ctx))
	if signalErr := p.signal(syscall.SIGQUIT); signalErr != nil {
		return errors.Join(err, signalErr)
	}
	select {
	case <-p.done:
		return err
	case <-time.After(immediateLimit):
	}
	if signalErr := p.signal(syscall.SIGKILL); signalErr != nil {
		return errors.Join(err, signalErr)
	}
	<-p.done
	return err
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child of the kit's.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of its end; read it after done
}

// startProcess starts cmd, in a process group of its own so that a ^C is the kit's alone, from a thread that lives as long
// as the child: the kernel takes the end of the thread that forked for the death of the parent.
func startProcess(cmd *exec.Cmd, as *syscall.Credential) (*process, error) {
	cmd.SysProcAttr = childAttributes()
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Credential = as
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
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// signal sends a signal; a process that has ended needs none.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.cmd.Process.Pid, err)
	}
	return nil
}

// kill ends it with SIGKILL, which a stopped process takes too.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return err
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

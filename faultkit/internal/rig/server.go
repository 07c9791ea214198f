package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

const (
	serverStartLimit = 30 * time.Second
	serverStopLimit  = 40 * time.Second
	controlLimit     = 10 * time.Second
	clockTolerance   = 30 * time.Second // what a busy machine may take between two readings
)

// Server is one place for a target: a process at a time, behind a proxy of its own.
type Server struct {
	*proxy

	About   string // how it reaches the database
	slot    int
	program string
	dir     string
	config  target.Config
	addr    atomic.Pointer[string]

	mu       sync.Mutex // of what follows
	process  *process
	stopped  chan target.Stopped // what the process says at its end; closed without where it says nothing
	journals []string
	deaths   []string // ends of processes that nobody asked for
}

// Addr is where the current process listens, or the last one did.
func (s *Server) Addr() string { return *s.addr.Load() }

// start starts a process.
func (s *Server) start(ctx context.Context) error {
	c := s.config
	c.Journal = filepath.Join(s.dir, fmt.Sprintf("server-%d-%d.jsonl", s.slot, len(s.journals)+1))
	environment, err := c.Environment()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the process has a descriptor of its own
	stdout, out, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(s.program) //nolint:noctx // it outlives the start
	cmd.Env = append(os.Environ(), environment, "GORACE=halt_on_error=1")
	cmd.Stdout, cmd.Stderr = out, log
	p, err := startProcess(cmd, nil)
	err = errors.Join(err, out.Close())
	if err != nil {
		return errors.Join(err, stdout.Close())
	}
	ready, stopped := make(chan target.Ready, 1), make(chan target.Stopped, 1)
	go listen(stdout, ready, stopped)
	select {
	case r, ok := <-ready:
		if !ok {
			return errors.Join(fmt.Errorf("server %d does not start; its log is %s", s.slot, s.logFile()), p.kill())
		}
		s.addr.Store(&r.Addr)
	case <-time.After(serverStartLimit):
		return errors.Join(fmt.Errorf("server %d does not get ready; its log is %s", s.slot, s.logFile()), p.kill())
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
	s.process, s.stopped, s.journals = p, stopped, append(s.journals, c.Journal)
	return nil
}

func (s *Server) logFile() string { return filepath.Join(s.dir, fmt.Sprintf("server-%d.log", s.slot)) }

// listen hands on what a process says.
func listen(stdout io.ReadCloser, ready chan<- target.Ready, stopped chan<- target.Stopped) {
	defer stdout.Close()
	defer close(stopped)
	says := json.NewDecoder(bufio.NewReader(stdout))
	var r target.Ready
	if says.Decode(&r) == nil {
		ready <- r
	}
	close(ready)
	var end target.Stopped
	if says.Decode(&end) == nil {
		stopped <- end
	}
}

// Kill kills the process, and starts another once the time away is over.
func (s *Server) Kill(ctx context.Context, away time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteDeath()
	if err := s.process.kill(); err != nil {
		return err
	}
	<-time.After(away)
	return s.start(context.WithoutCancel(ctx))
}

// noteDeath remembers a process that has ended and should not have.
func (s *Server) noteDeath() {
	if s.process.ended() {
		s.deaths = append(s.deaths, fmt.Sprintf("server %d ended by itself (%v); its log is %s",
			s.slot, s.process.cmd.ProcessState, s.logFile()))
	}
}

// Pause stops the process with SIGSTOP, and lets it go on after d, unless it was killed meanwhile.
func (s *Server) Pause(d time.Duration) error {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-p.done:
	}
	return p.signal(syscall.SIGCONT)
}

// ExhaustPool holds all connections of the process's pool that it can get, as long as d lasts. It reports whether the
// process said that it did, which one that another fault has ended or paused does not.
func (s *Server) ExhaustPool(ctx context.Context, d time.Duration) (done bool, err error) {
	_, err = s.control(ctx, http.MethodPost, target.PathPool, url.Values{"for": {d.String()}}, d+controlLimit)
	if _, refused := errors.AsType[*refusedError](err); refused {
		return false, err
	}
	return err == nil, nil
}

// WrongClock has the process's clock wrong by some time as long as d lasts. It reports whether the clock was seen to be
// wrong, which a process that another fault has ended or paused does not show.
func (s *Server) WrongClock(ctx context.Context, by, d time.Duration) (seen bool, err error) {
	set := func(by time.Duration) (time.Duration, error) {
		var stat target.Stat
		text, err := s.control(ctx, http.MethodPost, target.PathClock, url.Values{"by": {by.String()}}, controlLimit)
		if err == nil {
			err = json.Unmarshal(text, &stat)
		}
		return time.Until(time.Unix(0, stat.UnixNano)), err
	}
	wrong, err := set(by)
	if _, refused := errors.AsType[*refusedError](err); refused {
		return false, err
	}
	if err == nil && (wrong-by).Abs() > clockTolerance {
		return false, fmt.Errorf("server %d's clock should be wrong by %v and is by %v", s.slot, by, wrong)
	}
	seen = err == nil
	<-time.After(d)
	_, err = set(0)
	if _, refused := errors.AsType[*refusedError](err); refused {
		return seen, err
	}
	return seen, nil
}

// Stat asks the process how it is.
func (s *Server) Stat(ctx context.Context) (stat target.Stat, err error) {
	text, err := s.control(ctx, http.MethodGet, target.PathStat, nil, controlLimit)
	if err == nil {
		err = json.Unmarshal(text, &stat)
	}
	return stat, err
}

// refusedError is the answer of a process that does not do what it was asked to.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

func (s *Server) control(ctx context.Context, method, path string, query url.Values, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr()+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = &refusedError{fmt.Sprintf("server %d: %s: %s", s.slot, res.Status, text)}
	}
	return text, err
}

// stop ends the process gracefully, and returns what it said.
func (s *Server) stop() (target.Stopped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return target.Stopped{}, nil
	}
	s.noteDeath()
	if err := s.process.signal(syscall.SIGTERM); err != nil {
		return target.Stopped{}, err
	}
	select {
	case <-s.process.done:
	case <-time.After(serverStopLimit):
		return target.Stopped{}, errors.Join(fmt.Errorf("server %d does not stop; its log is %s", s.slot, s.logFile()), s.process.kill())
	}
	end, ok := <-s.stopped
	if !ok || s.process.err != nil {
		return end, fmt.Errorf("server %d did not stop in order (%v); its log is %s", s.slot, s.process.cmd.ProcessState, s.logFile())
	}
	return end, nil
}

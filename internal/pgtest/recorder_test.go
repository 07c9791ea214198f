package pgtest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that may fail without failing the one that looks at it.
type recorder struct {
	testing.TB // what is not recorded

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

func newRecorder(t *testing.T) *recorder { return &recorder{TB: t} }

// run runs f as a test, and then what it has left to clean up.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		cleanup := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		cleanup()
	}
}

func (r *recorder) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func (r *recorder) record(fails bool, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || fails
	r.lines = append(r.lines, line)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Log(args ...any)                   { r.record(false, fmt.Sprint(args...)) }
func (r *recorder) Error(args ...any)                 { r.record(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.record(true, fmt.Sprintf(format, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.record(true, fmt.Sprint(args...))
	runtime.Goexit()
}

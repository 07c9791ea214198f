package pglaunch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServerEndsWithAParentThatWasKilled(t *testing.T) {
	r := startChild(t, sharedDir(t))
	started := r.wait(t, "started")
	r.kill(t)
	awaitLock(t, started.Folder)
}

func TestServerOutlivesTheThreadThatCalledStart(t *testing.T) {
	type result struct {
		thread int
		server *Server
		err    error
	}
	results := make(chan result)
	dir := sharedDir(t)
	onThreadThatEnds(func() {
		s, err := Start(t.Context(), Config{DataDir: dir, NoSync: true})
		results <- result{syscall.Gettid(), s, err}
	})
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := poll(ctx, time.Millisecond, func() (bool, error) {
		_, err := os.Stat(filepath.Join("/proc/self/task", strconv.Itoa(r.thread)))
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		t.Errorf("the thread lives on: %v", err)
	}
	if err := r.server.process.halt(t.Context(), syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if log := r.server.folder.logTail(); strings.Contains(log, "immediate shutdown") {
		t.Error("the server was told that its parent had died", log)
	}
	if err := r.server.release(t.Context()); err != nil {
		t.Error(err)
	}
}

// onThreadThatEnds runs f on a thread that ends after it: one that its goroutine never unlocks, and not the main one,
// which Go keeps.
func onThreadThatEnds(f func()) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != os.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		onThreadThatEnds(func() { defer close(done); f() })
		<-done
	}()
}

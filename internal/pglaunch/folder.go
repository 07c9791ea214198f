package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrInUse is what Start returns where the data folder has a server already, started by this process or another one.
var ErrInUse = errors.New("the data folder is in use")

// What a folder holds. The folder and its files belong to the user who starts the server, the two folders in it to the
// one whom the server runs as.
const (
	lockFile       = "lock"         // locked by the process that started the server; holds its id
	serverLockFile = "server.lock"  // locked by the server's own processes
	temporaryFile  = "temporary"    // says that the folder may go once both locks are free
	logFile        = "postgres.log" // what the programs print; that of the start before it is postgres.log.1
	dataDir        = "data"
	socketDir      = "socket"
)

// folder is a folder for one server, whose lock this process holds.
type folder struct {
	path   string // absolute, without symbolic links
	lock   *os.File
	remove bool // when it is released
}

func (f *folder) dataDir() string   { return filepath.Join(f.path, dataDir) }
func (f *folder) socketDir() string { return filepath.Join(f.path, socketDir) }
func (f *folder) logFile() string   { return filepath.Join(f.path, logFile) }

// openFolder returns the folder for c's server.
func openFolder(as account, c Config, bin binaries) (*folder, error) {
	if c.DataDir == "" {
		return newTemporary(as, c.Keep)
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "postgresql-"+strconv.Itoa(bin.major))
	if err := makeAll(as, dir); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if uid, _ := owner(info); uid != uint32(os.Geteuid()) {
		return nil, fmt.Errorf("%s belongs to the user with id %d: run as that user, or use another data folder", dir, uid)
	}
	return lockFolder(dir, os.O_CREATE)
}

// makeAll makes dir and the folders above it that are missing, and leaves those that exist as they are.
func makeAll(as account, dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil {
		return as.reaches(resolved)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeAll(as, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, as.outer()); errors.Is(err, fs.ErrExist) {
		return nil // by another start, a moment ago
	} else if err != nil {
		return err
	}
	return os.Chmod(dir, as.outer()) // whatever the umask took away
}

// lockFolder takes the lock of a folder. flag is os.O_CREATE, or 0 where its files must exist.
func lockFolder(dir string, flag int) (*folder, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	free, err := tryLock(lock)
	if err == nil && !free {
		holder, readErr := io.ReadAll(lock)
		err = errors.Join(fmt.Errorf("%s: %w by process %s", dir, ErrInUse, strings.TrimSpace(string(holder))), readErr)
	}
	if err == nil {
		err = lock.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintln(lock, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &folder{path: dir, lock: lock}, nil
}

// tryServerLock takes the lock that the processes of a server hold for as long as one of them lives, if it is free.
// They inherit the file: nobody has to tell their ids from those of others, or clean up after them.
func (f *folder) tryServerLock() (server *os.File, free bool, err error) {
	server, err = os.OpenFile(filepath.Join(f.path, serverLockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	if free, err = tryLock(server); err != nil || !free {
		return nil, false, errors.Join(err, server.Close())
	}
	return server, true, nil
}

// claimServerLock takes the lock of the server's processes from an earlier server of this folder: one whose parent has
// just been killed, or, where the kernel does not end it with its parent, was killed at any time before.
func (f *folder) claimServerLock(ctx context.Context, t task, bin binaries) (*os.File, error) {
	server, free, err := f.tryServerLock()
	if err != nil || free {
		return server, err
	}
	// It may end by itself before pg_ctl finds it: the lock says whether it has ended, not pg_ctl.
	stopErr := run(ctx, t.command(ctx, bin.path("pg_ctl"), "stop", "-m", "immediate", "-D", f.dataDir()))
	if server, err = f.awaitServerLock(ctx); err != nil {
		return nil, fmt.Errorf("an earlier server in %s has not ended: %w", f.path, errors.Join(err, stopErr))
	}
	return server, nil
}

// awaitServerLock is tryServerLock that waits.
func (f *folder) awaitServerLock(ctx context.Context) (server *os.File, err error) {
	err = poll(ctx, 5*time.Millisecond, func() (free bool, err error) {
		server, free, err = f.tryServerLock()
		return free, err
	})
	return server, err
}

// release gives the folder up, once no process of its server lives.
func (f *folder) release(ctx context.Context) error {
	server, err := f.awaitServerLock(ctx)
	if err == nil {
		if f.remove {
			err = f.removeAll()
		}
		err = errors.Join(err, server.Close())
	} else {
		err = fmt.Errorf("processes of the server in %s live on: %w", f.path, err)
	}
	// Unlocked before it is closed: a process that is being forked at this moment has a copy of it.
	return errors.Join(err, unlock(f.lock), f.lock.Close())
}

// removeAll removes what is large before the files that tell sweep that it is ours.
func (f *folder) removeAll() error {
	for _, path := range []string{f.dataDir(), f.socketDir(), f.path} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// openLog begins a new log.
func (f *folder) openLog() (*os.File, error) {
	if err := os.Rename(f.logFile(), f.logFile()+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(f.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// logTail returns the last lines of the log, to end an error's text with.
func (f *folder) logTail() string {
	const most = 20
	content, err := os.ReadFile(f.logFile())
	if err != nil {
		return fmt.Sprintf(" (and its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return "; the end of its log:\n" + strings.Join(lines[max(0, len(lines)-most):], "\n")
}

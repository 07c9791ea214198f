package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const temporaryPrefix = "pglaunch-"

// temporaryRoots are the folders for temporary folders, the preferred one first: root's TMPDIR may be one that only
// root can enter, and anybody's may have a path too long for a socket.
func temporaryRoots() []string { return []string{os.TempDir(), "/tmp", "/var/tmp"} }

// newTemporary makes a temporary folder that as can reach.
func newTemporary(as account, keep bool) (*folder, error) {
	return newTemporaryIn(as, keep, func(string) bool { return true })
}

// newTemporarySocket makes one that is fit for a socket.
func newTemporarySocket(as account, keep bool) (*folder, error) {
	return newTemporaryIn(as, keep, func(root string) bool {
		longest := socketPath(filepath.Join(root, temporaryPrefix+"4294967295", socketDir), "65535")
		return len(longest) <= socketPathMax && !strings.Contains(root, ",")
	})
}

func newTemporaryIn(as account, keep bool, fit func(root string) bool) (*folder, error) {
	root, err := temporaryRoot(as, fit)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(root, temporaryPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, as.outer()); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	f, err := lockFolder(dir, os.O_CREATE)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if keep {
		return f, nil
	}
	f.remove = true
	// Only now that the lock is held: sweep takes a folder with this file and a free lock for a dead one's.
	const says = "The server that lived here was temporary: pglaunch removes this folder.\n"
	if err := os.WriteFile(filepath.Join(dir, temporaryFile), []byte(says), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), f.lock.Close())
	}
	return f, nil
}

func temporaryRoot(as account, fit func(root string) bool) (string, error) {
	var unfit []error
	for _, root := range temporaryRoots() {
		dir, err := filepath.Abs(root)
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err == nil {
			err = as.reaches(dir)
		}
		if err == nil && !fit(dir) {
			err = fmt.Errorf("%s: not fit for the path of a socket", dir)
		}
		if err == nil {
			return dir, nil
		}
		unfit = append(unfit, err)
	}
	return "", fmt.Errorf("no place for a temporary folder: %w", errors.Join(unfit...))
}

// sweep removes the temporary folders that processes of this user left when they were killed.
func sweep(ctx context.Context, t task, bin binaries) error {
	var errs []error
	for _, root := range temporaryRoots() {
		dirs, err := filepath.Glob(filepath.Join(root, temporaryPrefix+"*"))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			// What is not there any more, its owner is removing.
			if err := sweepFolder(ctx, t, bin, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func sweepFolder(ctx context.Context, t task, bin binaries, dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if uid, _ := owner(info); !info.IsDir() || uid != uint32(os.Geteuid()) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, temporaryFile)); err != nil {
		return err
	}
	f, err := lockFolder(dir, 0)
	if errors.Is(err, ErrInUse) {
		return nil
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, immediateLimit)
	defer cancel()
	server, err := f.claimServerLock(ctx, t, bin)
	if err == nil {
		f.remove = true
		err = server.Close()
	}
	return errors.Join(err, f.release(ctx))
}

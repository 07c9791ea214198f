//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pglaunch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const supported = true

// tryLock locks a file for all of its descriptors, here and in processes that inherit one, if nobody else has it locked.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return true, nil
}

func unlock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
		return fmt.Errorf("unlock %s: %w", f.Name(), err)
	}
	return nil
}

// owner returns the user and the group that a file belongs to.
func owner(info fs.FileInfo) (uid, gid uint32) {
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Uid, stat.Gid
}

// childAttributes puts a child out of reach of the terminal's ^C, and takes root away from it.
func childAttributes(as account, parentDeath syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as.drop {
		attr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	setParentDeath(attr, parentDeath)
	return attr
}

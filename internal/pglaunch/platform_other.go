//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pglaunch

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// supported is false where there are no users and groups, locks and signals as PostgreSQL needs them here. Start returns
// ErrNoBinaries before it comes to what is below.
const supported = false

func tryLock(*os.File) (bool, error)      { return false, errors.ErrUnsupported }
func unlock(*os.File) error               { return errors.ErrUnsupported }
func owner(fs.FileInfo) (uid, gid uint32) { return 0, 0 }

func childAttributes(account, syscall.Signal) *syscall.SysProcAttr { return nil }

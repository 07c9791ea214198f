package pglaunch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// ErrUnreachable is what Start returns where the server's user may not enter a folder that it needs.
var ErrUnreachable = errors.New("a folder that the server's user cannot enter")

// account is the user that the server runs as: ourselves, unless we are root.
type account struct {
	name     string
	uid, gid uint32
	drop     bool // we are root, and the server's processes are not
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			continue
		} else if err != nil {
			return account{}, err
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid), drop: true}, nil
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}

// mkdir makes a folder that only a, and root, may enter.
func (a account) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if !a.drop {
		return nil
	}
	return os.Lchown(dir, int(a.uid), int(a.gid))
}

// outer is the mode of the folders around those that a owns: a goes through them, and writes nothing there. So root
// never opens, by a name that another user could have planted, a file to write to.
func (a account) outer() fs.FileMode {
	if a.drop {
		return 0o711
	}
	return 0o700
}

// reaches returns ErrUnreachable where a may not go through dir or a folder above it. dir is absolute and without
// symbolic links. Only root needs to ask: others get the answer from the kernel.
func (a account) reaches(dir string) error {
	if !a.drop {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		switch uid, gid := owner(info); {
		case uid == a.uid:
			mode &= 0o100
		case gid == a.gid:
			mode &= 0o010
		default:
			mode &= 0o001
		}
		if mode == 0 {
			return fmt.Errorf("%w: %s, with mode %#o, keeps %s out", ErrUnreachable, at, info.Mode().Perm(), a.name)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

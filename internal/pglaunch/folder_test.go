//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pglaunch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// another is a user that is neither root nor, most likely, anybody here.
func another() account { return account{name: "another", uid: 54321, gid: 54321, drop: true} }

func TestUnreachableFolderIsNamedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(newDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	err := makeAll(another(), filepath.Join(closed, "a", "b"))
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	info, err := os.Stat(closed)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if exists(t, filepath.Join(closed, "a")) {
		t.Error("a folder was made in it")
	}
}

func TestNewFoldersAreReachableWhateverTheUmask(t *testing.T) {
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	dir := filepath.Join(newDir(t), "a", "b")
	if err := makeAll(another(), dir); err != nil {
		t.Fatal(err)
	}
	if err := another().reaches(dir); err != nil {
		t.Error(err)
	}
}

func TestReaches(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	tests := []struct {
		name    string
		mode    os.FileMode
		as      account
		reaches bool
	}{
		{"owner", 0o700, account{uid: uid, gid: 1 + gid, drop: true}, true},
		{"owner shut out", 0o077, account{uid: uid, gid: gid, drop: true}, false},
		{"group", 0o710, account{uid: 1 + uid, gid: gid, drop: true}, true},
		{"group shut out", 0o701, account{uid: 1 + uid, gid: gid, drop: true}, false},
		{"others", 0o711, another(), true},
		{"others shut out", 0o770, another(), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := os.Chmod(dir, test.mode); err != nil {
				t.Fatal(err)
			}
			err := test.as.reaches(dir)
			if test.reaches && err != nil || !test.reaches && !errors.Is(err, ErrUnreachable) {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
}

func TestFolderOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	bin, err := find(t, "", defaultPlaces())
	if err != nil {
		t.Fatal(err)
	}
	// A link to a folder that is root's, or, for root, to one that was given away.
	theirs := "/usr"
	if os.Getuid() == 0 {
		theirs = newDir(t)
		if err := os.Lchown(theirs, 54321, 54321); err != nil {
			t.Fatal(err)
		}
	}
	dir := newDir(t)
	if err := os.Symlink(theirs, filepath.Join(dir, "postgresql-"+strconv.Itoa(bin.major))); err != nil {
		t.Fatal(err)
	}
	if f, err := openFolder(account{}, Config{DataDir: dir}, bin); err == nil {
		t.Errorf("took %s", f.path)
	}
}

func TestUnfitTMPDIRIsLeftAlone(t *testing.T) {
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(newDir(t), strings.Repeat("long/", 30))
	closed := filepath.Join(newDir(t), "closed")
	for dir, mode := range map[string]os.FileMode{long: 0o755, closed: 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]func() (*folder, error){
		long:   func() (*folder, error) { return newTemporarySocket(as, false) },
		closed: func() (*folder, error) { return newTemporary(another(), false) },
	}
	for dir, make := range tests {
		t.Setenv("TMPDIR", dir)
		f, err := make()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(f.path, dir) {
			t.Errorf("got %s", f.path)
		}
		if err := f.release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestSweep(t *testing.T) {
	tmp := newDir(t)
	t.Setenv("TMPDIR", tmp)
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := find(t, "", defaultPlaces())
	if err != nil {
		t.Fatal(err)
	}
	temporary := func(keep bool) *folder {
		f, err := newTemporary(as, keep)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	abandon := func(f *folder) *folder { // as the end of the process does
		if err := f.lock.Close(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	inUse := temporary(false)
	kept := abandon(temporary(true))
	left := abandon(temporary(false))
	write(t, filepath.Join(left.dataDir(), "base", "1"), "data")
	foreign := filepath.Join(tmp, temporaryPrefix+"of-somebody-else")
	write(t, filepath.Join(foreign, "file"), "")

	theirs := abandon(temporary(false))
	if os.Getuid() == 0 { // nobody else can give a folder away
		if err := os.Lchown(theirs.path, 54321, 54321); err != nil {
			t.Fatal(err)
		}
	}

	if err := sweep(t.Context(), task{as: as, dir: "/"}, bin); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]bool{
		inUse.path: true, kept.path: true, foreign: true, left.path: false, theirs.path: os.Getuid() == 0,
	} {
		if exists(t, path) != want {
			t.Errorf("%s is there: %v", path, !want)
		}
	}
	if err := inUse.release(t.Context()); err != nil {
		t.Error(err)
	}
	if exists(t, inUse.path) {
		t.Errorf("%s is still there", inUse.path)
	}
}

func TestStartSweeps(t *testing.T) {
	dir := sharedDir(t)
	t.Setenv("TMPDIR", newDir(t))
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	left, err := newTemporary(as, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := left.lock.Close(); err != nil {
		t.Fatal(err)
	}
	mustStart(t, Config{DataDir: dir, NoSync: true})
	if exists(t, left.path) {
		t.Errorf("%s is still there", left.path)
	}
}

func TestReleasedFolderIsFreeWhileAnotherProcessIsForked(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	f, err := lockFolder(dir, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	forked, err := syscall.Dup(int(f.lock.Fd())) // what a child has of it until it runs its program
	if err != nil {
		t.Fatal(err)
	}
	if err := f.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f, err = lockFolder(dir, os.O_CREATE); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.release(t.Context()), syscall.Close(forked)); err != nil {
		t.Error(err)
	}
}

func TestShellLine(t *testing.T) {
	t.Parallel()
	words := []string{"plain", "/a-b/c_d.e", "", "two words", "it's", `"$HOME"`, "a;b", "-c", "x=y", "new\nline", "~", "#"}
	want := "<plain></a-b/c_d.e><><two words><it's><\"$HOME\"><a;b><-c><x=y><new\nline><~><#>"
	if got := shell(t, "printf '<%s>' "+shellLine(words...)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pglaunch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// find is locate without the environment's word.
func find(t *testing.T, named string, in places) (binaries, error) {
	t.Helper()
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	return locate(t.Context(), as, named, in)
}

func TestBinariesThatWereNamed(t *testing.T) {
	dir := newDir(t)
	named := fakeBinaries(t, filepath.Join(dir, "named"), "14.3", "")
	variable := fakeBinaries(t, filepath.Join(dir, "variable"), "15.4", "")
	inPath := fakeBinaries(t, filepath.Join(dir, "path"), "16.5", "")
	t.Setenv(binVariable, variable)
	for want, config := range map[string]string{named: named, variable: ""} {
		got, err := find(t, config, places{path: inPath})
		if err != nil || got.dir != want {
			t.Errorf("BinDir %q: got %v, %v", config, got, err)
		}
	}
	t.Setenv(binVariable, filepath.Join(dir, "mistyped"))
	// Not ErrNoBinaries, which means that this machine has none.
	if _, err := find(t, "", places{path: inPath}); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNoBinaries) {
		t.Errorf("got %v", err)
	}
}

func TestBinariesThatWereFound(t *testing.T) {
	t.Setenv(binVariable, "")
	dir := newDir(t)
	for _, version := range []string{"9.6.24", "10.23", "16.4", "17beta1"} {
		fakeBinaries(t, filepath.Join(dir, "versions", version, "bin"), version, "")
	}
	write(t, filepath.Join(dir, "versions", "99", "bin", "postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 99.0'\n") // no initdb
	globs := []string{filepath.Join(dir, "versions", "*", "bin")}
	links := filepath.Join(dir, "links")
	write(t, filepath.Join(links, "unrelated"), "")
	if err := os.Symlink(filepath.Join(dir, "versions", "10.23", "bin", "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name        string
		in          places
		wantVersion string
		wantMajor   int
	}{
		{"the newest", places{globs: globs}, "17beta1", 17},
		{"PATH before the newest, links followed", places{path: links, globs: globs}, "10.23", 10},
		{"no relative folder of PATH", places{path: "relative::" + links}, "10.23", 10},
		{"past what cannot be used", places{path: filepath.Join(dir, "versions", "99", "bin"), globs: globs}, "17beta1", 17},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := find(t, "", test.in)
			if err != nil || got.version != test.wantVersion || got.major != test.wantMajor {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestNoBinaries(t *testing.T) {
	t.Setenv(binVariable, "")
	dir := newDir(t)
	old := fakeBinaries(t, filepath.Join(dir, "old"), "9.6.24", "")
	for _, in := range []places{{}, {path: dir, globs: []string{dir + "/none*"}}, {path: old}} {
		_, err := find(t, "", in)
		if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "apt-get install postgresql") {
			t.Errorf("%v: got %v", in, err)
		}
		if in.path == old && !strings.Contains(err.Error(), "9.6.24 is older") {
			t.Errorf("no word of what was found: %v", err)
		}
	}
}

func TestBinariesThatDoNotRun(t *testing.T) {
	dir := fakeBinaries(t, filepath.Join(newDir(t), "bin"), "15.0", "")
	write(t, filepath.Join(dir, "postgres"), "#!/bin/sh\necho a library is missing >&2\nexit 127\n")
	if _, err := find(t, dir, places{}); err == nil || !strings.Contains(err.Error(), "a library is missing") {
		t.Errorf("got %v", err)
	}
}

func TestSearchEndsWithItsContext(t *testing.T) {
	t.Setenv(binVariable, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bin := fakeBinaries(t, filepath.Join(newDir(t), "bin"), "15.0", "")
	if _, err := locate(ctx, account{}, "", places{globs: []string{bin}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n": "15.18",
		"postgres (PostgreSQL) 18rc1\n":                          "18rc1",
		"postgres (PostgreSQL) 17.2 (Homebrew)\n":                "17.2",
		"postgres (PostgreSQL) 9.6.24\n":                         "",
		"usage: postgres\n":                                      "",
	}
	for line, want := range tests {
		got, _, err := parseVersion(line)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", line, got, err)
		}
	}
}

package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoBinaries is what Start returns where the machine has no PostgreSQL to start. Its text says how to install one.
// A folder that was named, in Config.BinDir or in the environment, and holds none, is another error.
var ErrNoBinaries = errors.New(`no PostgreSQL server is installed that can be started (version 10 or newer). To install one:
  Debian, Ubuntu  apt-get install postgresql
  Fedora, RHEL    dnf install postgresql-server
  Alpine          apk add postgresql
  macOS           brew install postgresql
or name the folder that holds initdb, postgres and pg_ctl in the environment variable ` + binVariable)

const (
	binVariable = "CONNECT_IDEMPOTENCY_PG_BIN"
	oldestMajor = 10 // the first with a status in postmaster.pid
)

// binaries are the programs of one installed PostgreSQL.
type binaries struct {
	dir     string // without symbolic links
	version string // 15.18
	major   int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// places are where to look for binaries that nobody named.
type places struct {
	path  string   // a list of folders, as in PATH
	globs []string // patterns of folders
}

func defaultPlaces() places {
	return places{
		path: os.Getenv("PATH"),
		globs: []string{
			"/usr/lib/postgresql/*/bin",                          // Debian
			"/usr/pgsql-*/bin",                                   // the PostgreSQL project's RPMs
			"/usr/lib*/postgresql-*/bin",                         // Gentoo
			"/usr/libexec/postgresql*",                           // Alpine
			"/usr/local/pgsql/bin",                               // built from source
			"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew
			"/usr/local/opt/postgresql*/bin",                     //
			"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     //
			"/opt/local/lib/postgresql*/bin",                     // MacPorts
			"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
			"/Library/PostgreSQL/*/bin",                          // EDB's installer
		},
	}
}

// locate finds the binaries to use: those of the folder named, else of the one in the environment, else the first in
// PATH, else the newest of the other places.
func locate(ctx context.Context, as account, named string, in places) (binaries, error) {
	if !supported {
		return binaries{}, fmt.Errorf("%w (a private server needs a Unix system)", ErrNoBinaries)
	}
	if named == "" {
		named = os.Getenv(binVariable)
	}
	if named != "" {
		b, err := inspect(ctx, as, named)
		if err != nil {
			return binaries{}, fmt.Errorf("PostgreSQL's binaries in %s: %w", named, err)
		}
		return b, nil
	}

	var unfit []error // why what was found cannot be used
	for _, dir := range filepath.SplitList(in.path) {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); !filepath.IsAbs(dir) || err != nil {
			continue
		}
		b, err := inspect(ctx, as, dir)
		if err == nil {
			return b, nil
		}
		unfit = append(unfit, fmt.Errorf("%s: %w", dir, err))
	}
	var found []binaries
	for _, pattern := range in.globs {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return binaries{}, err
		}
		for _, dir := range dirs {
			b, err := inspect(ctx, as, dir)
			if err != nil {
				unfit = append(unfit, fmt.Errorf("%s: %w", dir, err))
				continue
			}
			found = append(found, b)
		}
	}
	if ctx.Err() != nil {
		return binaries{}, context.Cause(ctx)
	}
	if len(found) == 0 {
		return binaries{}, errors.Join(append([]error{ErrNoBinaries}, unfit...)...)
	}
	return slices.MaxFunc(found, func(a, b binaries) int { return a.major - b.major }), nil
}

// inspect finds out what the binaries in dir are, and whether as can run them.
func inspect(ctx context.Context, as account, dir string) (binaries, error) {
	// initdb looks for postgres, and both for their data files, next to where they really are.
	postgres, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return binaries{}, err
	}
	if postgres, err = filepath.Abs(postgres); err != nil {
		return binaries{}, err
	}
	b := binaries{dir: filepath.Dir(postgres)}
	for _, program := range []string{"initdb", "pg_ctl"} {
		if _, err := os.Stat(b.path(program)); err != nil {
			return binaries{}, err
		}
	}
	if err := as.reaches(b.dir); err != nil {
		return binaries{}, err
	}
	t := task{as: as, dir: "/"}
	cmd := t.command(ctx, postgres, "--version")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := run(ctx, cmd); err != nil {
		return binaries{}, fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	b.version, b.major, err = parseVersion(out.String())
	return b, err
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// parseVersion reads what postgres --version prints: postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1).
func parseVersion(line string) (version string, major int, err error) {
	match := versionPattern.FindStringSubmatch(line)
	if match == nil {
		return "", 0, fmt.Errorf("not a version of PostgreSQL: %q", strings.TrimSpace(line))
	}
	if major, err = strconv.Atoi(match[2]); err != nil {
		return "", 0, err
	}
	if major < oldestMajor {
		return "", 0, fmt.Errorf("version %s is older than %d", match[1], oldestMajor)
	}
	return match[1], major, nil
}

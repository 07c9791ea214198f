package pglaunch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// UnsetClientEnv removes the variables whose names begin with PG from this process's environment. pgx and libpq take
// them for the defaults of every connection, and a URL cannot override them all.
func UnsetClientEnv() error {
	var errs []error
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PG") {
			errs = append(errs, os.Unsetenv(name))
		}
	}
	return errors.Join(errs...)
}

// DefaultDataDir returns a folder for Config.DataDir that keeps name's data from one start to the next: in the user's
// home, or for root in /var/lib, since the user whom root's servers run as cannot enter root's home. It makes nothing.
// The error is that of os.UserHomeDir.
func DefaultDataDir(name string) (string, error) {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib", name), nil
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, name), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", name), nil
}

package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// pidFile is the file in the data folder in which a running server says who and where it is.
	pidFile = "postmaster.pid"

	socketPort    = "5432" // part of the socket's name where nothing listens on a port
	socketPathMax = 103    // bytes that fit everywhere: Linux takes 107, macOS 103
)

func socketPath(dir, port string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// prepareData makes the data folder if there is none.
func (s *Server) prepareData(ctx context.Context, t task, c Config) error {
	info, err := os.Lstat(s.DataDir())
	if err == nil {
		if uid, _ := owner(info); uid != s.as.uid {
			return fmt.Errorf("%s belongs to the user with id %d, and the server would run as %d", s.DataDir(), uid, s.as.uid)
		}
		return s.removeStalePIDFile()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	// Under another name until it is whole, so that an initdb that was killed leaves nothing that looks like data.
	unfinished := s.DataDir() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := s.as.mkdir(unfinished); err != nil {
		return err
	}
	// One locale on every machine, and no password: the socket's folder is the fence.
	args := []string{"-D", unfinished, "-U", superuser, "--auth-local=trust", "--auth-host=reject", "--locale=C", "--encoding=UTF8"}
	sync := c.DataDir != "" && !c.NoSync
	if !sync {
		args = append(args, "--no-sync")
	}
	if err := run(ctx, t.command(ctx, s.bin.path("initdb"), args...)); err != nil {
		return fmt.Errorf("%w%s", err, s.folder.logTail())
	}
	if err := os.Rename(unfinished, s.DataDir()); err != nil || !sync {
		return err
	}
	return syncFolder(s.folder.path)
}

// syncFolder makes the names in a folder outlive a crash of the machine.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeStalePIDFile removes what a server of this folder left behind when it was killed. PostgreSQL would take the
// process that has that id now for a server on this data, and refuse to start; the lock says that there is none. A
// server that somebody started by hand has another socket folder, and stays PostgreSQL's to judge.
func (s *Server) removeStalePIDFile() error {
	name := filepath.Join(s.DataDir(), pidFile)
	p, err := readPIDFile(name)
	if err != nil || p.socketDir != s.folder.socketDir() {
		return err
	}
	return os.Remove(name)
}

// prepareSocket makes the folder of the socket: next to the data if that makes a path short enough for a socket and
// without a comma, which to clients and server ends a name in a list; else in a temporary folder.
func (s *Server) prepareSocket(c Config) error {
	s.socket = s.folder.socketDir()
	if len(socketPath(s.socket, s.port)) > socketPathMax || strings.Contains(s.socket, ",") {
		apart, err := newTemporarySocket(s.as, c.Keep)
		if err != nil {
			return err
		}
		s.apart = apart
		s.socket = apart.socketDir()
	}
	// A new folder each time: it holds no socket of a server that was killed, and its owner and mode are as they should be.
	if err := os.RemoveAll(s.socket); err != nil {
		return err
	}
	return s.as.mkdir(s.socket)
}

// pidInfo is what a postmaster.pid says.
type pidInfo struct {
	pid       int
	socketDir string
	status    string
}

// readPIDFile reads a postmaster.pid. One that is missing, or not all written yet, leaves fields empty.
func readPIDFile(name string) (pidInfo, error) {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return pidInfo{}, nil
	} else if err != nil {
		return pidInfo{}, err
	}
	var p pidInfo
	for i, line := range strings.Split(string(content), "\n") {
		switch i + 1 {
		case 1:
			pid, err := strconv.Atoi(line)
			if err != nil {
				return pidInfo{}, nil //nolint:nilerr // it is being written
			}
			p.pid = pid
		case 5:
			p.socketDir = line
		case 8:
			p.status = strings.TrimSpace(line)
		}
	}
	return p, nil
}

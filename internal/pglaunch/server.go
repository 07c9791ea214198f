package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// superuser is the server's one role.
const superuser = "postgres"

// Server is a running server. Its methods are safe for concurrent use.
type Server struct {
	as      account
	bin     binaries
	folder  *folder
	apart   *folder // holds the socket where folder's path is too long for one; else nil
	socket  string  // the folder of the socket
	port    string  // part of the socket's name, and with hba the port itself
	hba     string  // who gets in how, where the server listens on the loopback interface; else empty
	args    []string
	process *process

	end    sync.Once
	endErr error
}

// Version is the version of PostgreSQL, such as 15.18.
func (s *Server) Version() string { return s.bin.version }

// DataDir is the server's data folder.
func (s *Server) DataDir() string { return s.folder.dataDir() }

// LogFile is the file that has what initdb and the server printed since Start.
func (s *Server) LogFile() string { return s.folder.logFile() }

// URL returns a connection string for a database of this server. The database postgres is always there.
//
// It is meant for pgx, and psql takes it too. Both read variables such as PGSERVICE and PGOPTIONS from the environment for
// what the string leaves open, and fail where those are wrong: see UnsetClientEnv.
func (s *Server) URL(database string) string {
	return s.urlOf(s.socket, url.User(superuser), database)
}

// LoopbackURL is URL for a connection through the loopback interface, by the password that the role postgres was given. It
// is empty without Config.Loopback.
func (s *Server) LoopbackURL(database, password string) string {
	if s.hba == "" {
		return ""
	}
	return s.urlOf(loopback, url.UserPassword(superuser, password), database)
}

func (s *Server) urlOf(host string, user *url.Userinfo, database string) string {
	query := url.Values{
		"host":                 {host},
		"port":                 {s.port},
		"sslmode":              {"disable"},
		"target_session_attrs": {"any"},
	}.Encode()
	u := url.URL{
		Scheme:   "postgres",
		User:     user,
		Path:     "/" + database,
		RawQuery: strings.ReplaceAll(query, "+", "%20"), // to pgx and libpq a plus is a plus
	}
	return u.String()
}

// PSQL returns a command line, for a shell, that opens psql on a database of this server. It works for the user who
// started the server, and for root.
func (s *Server) PSQL(database string) string {
	psql := "psql"
	if _, err := exec.LookPath(psql); err != nil {
		psql = s.bin.path(psql)
	}
	return shellLine(psql, "-h", s.socket, "-p", s.port, "-U", superuser, "-d", database)
}

// Command returns a command line, for a shell of the user who started the server, that runs it in the foreground once
// more after Stop. Its folder must still be there: Config.DataDir or Config.Keep.
func (s *Server) Command() string {
	line := append([]string{s.bin.path("postgres")}, s.args...)
	if s.as.drop {
		as := []string{"sudo", "-u", s.as.name}
		if runtime.GOOS == "linux" {
			as = []string{"runuser", "-u", s.as.name, "--"}
		}
		line = append(as, line...)
	}
	return shellLine(line...)
}

// shellLine quotes what a shell would not take as it is.
func shellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		plain := func(r rune) bool {
			return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=,:@+", r)
		}
		if word == "" || strings.TrimFunc(word, plain) != "" {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted[i] = word
	}
	return strings.Join(quoted, " ")
}

// Done returns a channel that is closed when the server has ended, by itself or not.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Stop ends the server: open transactions are rolled back, connections closed, the data written, and a temporary folder
// removed. It returns when all of that is done. When ctx ends first the server is forced to end, which loses nothing
// that was committed, and Stop returns an error that wraps ctx's.
//
// A server that had ended by itself is an error too. The first call of Stop or Kill decides: every other one waits for
// it, and returns what it returned.
func (s *Server) Stop(ctx context.Context) error {
	return s.halt(ctx, syscall.SIGINT)
}

// Kill ends the server as a crash would, with SIGKILL, and is otherwise like Stop. The next Start with the same
// Config.DataDir recovers what was committed.
func (s *Server) Kill(ctx context.Context) error {
	return s.halt(ctx, syscall.SIGKILL)
}

func (s *Server) halt(ctx context.Context, sig syscall.Signal) error {
	s.end.Do(func() {
		var err error
		if s.process.ended() {
			err = fmt.Errorf("the server had ended by itself: %w%s", s.process.failure(), s.folder.logTail())
		} else {
			err = s.process.halt(ctx, sig)
		}
		if err = errors.Join(err, s.release(ctx)); err != nil {
			s.endErr = fmt.Errorf("pglaunch: %w", err)
		}
	})
	return s.endErr
}

// undo ends what a failed start has started.
func (s *Server) undo(ctx context.Context) error {
	var err error
	if s.process != nil && !s.process.ended() {
		err = s.process.halt(context.WithoutCancel(ctx), syscall.SIGQUIT)
	}
	return errors.Join(err, s.release(ctx))
}

// release gives up the server's folders. It waits for the processes of the ended server whatever has become of ctx.
func (s *Server) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), immediateLimit)
	defer cancel()
	err := s.folder.release(ctx)
	if s.apart != nil {
		err = errors.Join(err, s.apart.release(ctx))
	}
	return err
}

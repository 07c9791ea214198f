// Package pglaunch starts a private PostgreSQL server from the binaries that are installed on the machine, for tests,
// benchmarks and examples that must work where nothing has been set up.
//
// The server listens on a Unix socket, in a folder that nobody but its own user and root can enter; its one role, postgres,
// needs no password there. On the loopback interface it listens only where Config.Loopback asks for it. It lives no longer
// than the process that started it: on Linux the kernel ends it with its parent, even one that was killed with SIGKILL;
// elsewhere it may outlive such a parent, until the next Start in the same folder ends it, or any Start if the folder was
// temporary. A ^C at the terminal reaches this process alone, which then stops the server in its own time.
//
// PostgreSQL refuses to run as root. Root's servers run as the user postgres, or nobody where there is no postgres.
package pglaunch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// startLimit bounds a Start whose context has no deadline.
const startLimit = time.Minute

// Config says what server to start. Its zero value asks for a server in a temporary folder.
type Config struct {
	// DataDir is the folder whose data the next Start finds again. It is made if it is missing; the data lives in a
	// folder inside it, one for each major version of PostgreSQL. Empty means a temporary folder, removed by Stop.
	DataDir string

	// Keep leaves the temporary folder in place after Stop, for a look at it: see Server.Command.
	Keep bool

	// NoSync turns off every wait for the disk. Committed data then survives a crash of the server, but not one of the
	// machine.
	NoSync bool

	// BinDir is the folder that holds the binaries initdb, postgres and pg_ctl. Empty means the folder in the
	// environment variable CONNECT_IDEMPOTENCY_PG_BIN, else the one in PATH, else the newest version found in the
	// places where packages put them.
	BinDir string

	// Loopback has the server listen on a free port of 127.0.0.1 too, another one at each start. Others on the machine can
	// reach it there, so that a password is asked for, and nobody gets in before the role postgres was given one through
	// the socket, by ALTER ROLE: see Server.LoopbackURL.
	Loopback bool

	// Settings are PostgreSQL's own, by name, over its defaults. Start refuses those that it sets itself.
	Settings map[string]string
}

// ErrReservedSetting is what Start returns where Config.Settings holds a setting that Start sets itself.
var ErrReservedSetting = errors.New("a setting that pglaunch sets itself")

// reserved are the settings on which what this package promises depends.
func reserved() []string {
	return []string{
		"config_file", "data_directory", "external_pid_file", "hba_file", "ident_file", "listen_addresses",
		"log_destination", "logging_collector", "port", "unix_socket_directories", "unix_socket_permissions",
	}
}

// Start starts a server, with a new data folder where there is none yet, and returns once it accepts connections.
//
// ctx bounds the start only, with one minute where it has no deadline; a start that does not end in time is undone and
// returns an error that wraps ctx's. The other errors to look for with errors.Is are ErrNoBinaries, ErrInUse,
// ErrUnreachable and ErrReservedSetting. When a program of PostgreSQL fails, the error shows the end of its log.
//
// Whoever starts a server stops it, with Stop.
func Start(ctx context.Context, c Config) (*Server, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startLimit)
		defer cancel()
	}
	for name := range c.Settings {
		// PostgreSQL takes either case, and a dash for an underscore.
		if slices.Contains(reserved(), strings.ToLower(strings.ReplaceAll(name, "-", "_"))) {
			return nil, fmt.Errorf("pglaunch: %s: %w", name, ErrReservedSetting)
		}
	}
	s, err := start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("pglaunch: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, c Config) (*Server, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	bin, err := locate(ctx, as, c.BinDir, defaultPlaces())
	if err != nil {
		return nil, err
	}
	f, err := openFolder(as, c, bin)
	if err != nil {
		return nil, err
	}
	s := &Server{as: as, bin: bin, folder: f, port: socketPort}
	if err := s.launch(ctx, c); err != nil {
		return nil, errors.Join(err, s.undo(ctx))
	}
	return s, nil
}

// launch starts the server in its folder.
func (s *Server) launch(ctx context.Context, c Config) error {
	log, err := s.folder.openLog()
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the server has a descriptor of its own
	t := task{as: s.as, dir: s.folder.path, log: log}
	if err := sweep(ctx, t, s.bin); err != nil { // no reason not to start
		if _, err := fmt.Fprintf(log, "pglaunch: a left-over folder stays: %v\n", err); err != nil {
			return err
		}
	}
	if t.inherit, err = s.folder.claimServerLock(ctx, t, s.bin); err != nil {
		return err
	}
	// From the fork on the server's processes hold this lock, by file descriptors of their own.
	defer t.inherit.Close() //nolint:errcheck // nothing was written
	if err := s.prepareData(ctx, t, c); err != nil {
		return err
	}
	if c.Loopback {
		if err := s.prepareLoopback(ctx); err != nil {
			return err
		}
	}
	if err := s.prepareSocket(c); err != nil {
		return err
	}
	s.args = append([]string{"-D", s.DataDir()}, s.settings(c)...)
	if s.process, err = t.startServer(s.bin.path("postgres"), s.args...); err != nil { //nolint:contextcheck // it outlives the start
		return err
	}
	return s.awaitReady(ctx)
}

// settings returns the server's settings as arguments. Those of a command line win over those in any file, and the
// last of two wins.
func (s *Server) settings(c Config) []string {
	var args []string
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	if c.NoSync {
		// Not synchronous_commit: it is worth nothing once fsync is off, and a test may want to see its default.
		set("fsync", "off")
		set("full_page_writes", "off")
	}
	if s.hba != "" {
		set("password_encryption", "scram-sha-256") // which the file asks for, and before version 14 is not the default
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		set(name, c.Settings[name])
	}
	if s.hba != "" {
		set("listen_addresses", loopback)
		set("hba_file", s.hba)
	} else {
		set("listen_addresses", "")
	}
	set("port", s.port)
	set("unix_socket_directories", s.socket)
	set("unix_socket_permissions", "0700")
	set("logging_collector", "off")
	set("log_destination", "stderr")
	return args
}

// awaitReady returns once the server accepts connections.
func (s *Server) awaitReady(ctx context.Context) error {
	err := poll(ctx, 5*time.Millisecond, func() (bool, error) {
		if s.process.ended() {
			return false, s.process.failure()
		}
		p, err := readPIDFile(filepath.Join(s.DataDir(), pidFile))
		if err != nil {
			return false, err
		}
		return p.pid == s.process.cmd.Process.Pid && p.status == "ready", nil
	})
	if err != nil {
		return fmt.Errorf("postgres does not get ready: %w%s", err, s.folder.logTail())
	}
	return nil
}

// poll asks done at once, and then every so often until it says yes or fails, or ctx ends.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pglaunch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestZeroConfigIsAServerThatLeavesNothing(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Config{})
	wantQuery(t, s, "show fsync", "on")
	wantQuery(t, s, "show listen_addresses", "")
	wantQuery(t, s, "show server_encoding", "UTF8")
	wantQuery(t, s, "show data_directory", s.DataDir())
	if version := query(t, s.URL("postgres"), "show server_version"); !strings.HasPrefix(version, s.Version()) {
		t.Errorf("the server is a %s, not a %s", version, s.Version())
	}
	mustStop(t, s)
	if exists(t, s.folder.path) {
		t.Errorf("%s is still there", s.folder.path)
	}
}

func TestSettings(t *testing.T) {
	s := mustStart(t, Config{DataDir: sharedDir(t), NoSync: true, Settings: map[string]string{"max_connections": "23", "full_page_writes": "on"}})
	wantQuery(t, s, "show max_connections", "23")
	wantQuery(t, s, "show fsync", "off")
	wantQuery(t, s, "show full_page_writes", "on")
	wantQuery(t, s, "show synchronous_commit", "on")
}

// Through the socket as ever, and through the loopback interface for who knows the password alone; at the next start too.
func TestLoopback(t *testing.T) {
	dir := sharedDir(t)
	refused := func(s *Server, password string) bool {
		_, err := pgx.Connect(t.Context(), s.LoopbackURL("postgres", password))
		refusal, ok := errors.AsType[*pgconn.PgError](err)
		return ok && refusal.Code == "28P01" // invalid_password
	}
	for range 2 {
		s := mustStart(t, Config{DataDir: dir, NoSync: true, Loopback: true})
		query(t, s.URL("postgres"), "alter role postgres password null", "select ''")
		if !refused(s, "") || !refused(s, "right") {
			t.Error("who comes while there is no password is not refused")
		}
		query(t, s.URL("postgres"), "alter role postgres password 'right'", "select ''")
		if !refused(s, "wrong") {
			t.Error("a wrong password is not refused")
		}
		if at := query(t, s.LoopbackURL("postgres", "right"), "select host(inet_server_addr())"); at != loopback {
			t.Errorf("connected to %s, want %s", at, loopback)
		}
		mustStop(t, s)
	}
	s := mustStart(t, Config{DataDir: dir, NoSync: true})
	wantQuery(t, s, "show listen_addresses", "")
	if at := s.LoopbackURL("postgres", "right"); at != "" {
		t.Errorf("the URL of what is not there is %q", at)
	}
}

func TestReservedSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"listen_addresses", "Port", "unix-socket-directories"} {
		if _, err := Start(t.Context(), Config{Settings: map[string]string{name: "x"}}); !errors.Is(err, ErrReservedSetting) {
			t.Errorf("%s: got %v, want ErrReservedSetting", name, err)
		}
	}
}

func TestDataSurvivesStopAndKill(t *testing.T) {
	dir := filepath.Join(newDir(t), "not", "there", "yet")
	s := mustStart(t, Config{DataDir: dir, NoSync: true})
	query(t, s.URL("postgres"), "drop table if exists kept", "create table kept as select 'before the stop' as said", "select ''")
	mustStop(t, s)

	s = mustStart(t, Config{DataDir: dir, NoSync: true})
	wantQuery(t, s, "select said from kept", "before the stop")
	query(t, s.URL("postgres"), "update kept set said = 'before the kill' returning ''")
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}

	s = mustStart(t, Config{DataDir: dir, NoSync: true})
	wantQuery(t, s, "select said from kept", "before the kill")
}

func TestOneServerInAFolder(t *testing.T) {
	dir := sharedDir(t)
	s := mustStart(t, Config{DataDir: dir, NoSync: true})
	_, err := Start(t.Context(), Config{DataDir: dir, NoSync: true})
	if !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	wantQuery(t, s, "select 'unharmed'", "unharmed")
}

func TestUnfinishedDataIsMadeAnew(t *testing.T) {
	t.Parallel()
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	s := Server{as: as, folder: &folder{path: dir}, bin: binaries{dir: fakeBinaries(t, filepath.Join(dir, "bin"), "15.0", "")}}
	write(t, filepath.Join(s.DataDir()+".new", "PG_VERSION"), "an initdb that was killed\n")
	if err := s.prepareData(t.Context(), task{as: as, dir: dir}, Config{DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(s.DataDir())
	if err != nil || len(left) != 0 || exists(t, s.DataDir()+".new") {
		t.Errorf("left of the unfinished data: %v, %v", left, err)
	}
}

func TestSocketIsElsewhereWhereItsPathIsUnfit(t *testing.T) {
	t.Parallel()
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	for _, unfit := range []string{strings.Repeat("long/", 30), "a,b"} {
		s := Server{as: as, folder: &folder{path: filepath.Join(newDir(t), unfit)}}
		if err := s.prepareSocket(Config{}); err != nil {
			t.Fatal(err)
		}
		if path := socketPath(s.socket, s.port); len(path) > socketPathMax || strings.Contains(path, ",") {
			t.Errorf("got %s", path)
		}
		if err := s.apart.release(t.Context()); err != nil {
			t.Error(err)
		}
		if exists(t, s.apart.path) {
			t.Errorf("%s is still there", s.apart.path)
		}
	}
}

func TestSocketFolderIsClosedToOthers(t *testing.T) {
	s := mustStart(t, Config{DataDir: sharedDir(t), NoSync: true})
	for _, dir := range []string{s.socket, s.DataDir()} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if uid, _ := owner(info); info.Mode().Perm() != 0o700 || uid != s.as.uid {
			t.Errorf("%s: mode %#o, owner %d", dir, info.Mode().Perm(), uid)
		}
	}
	if s.as.uid == 0 {
		t.Error("the server runs as root")
	}
}

func TestCommandLinesWorkAsPasted(t *testing.T) {
	s := mustStart(t, Config{DataDir: sharedDir(t), NoSync: true})
	query(t, s.URL("postgres"), "drop table if exists kept", "create table kept as select 'seen' as said", "select ''")
	if got := shell(t, s.PSQL("postgres")+" -Atc 'select said from kept'"); got != "seen" {
		t.Errorf("psql printed %q", got)
	}
	mustStop(t, s)

	// What Command starts goes on by itself, so this ends it the way a person would, with a shutdown through pg_ctl's
	// signal; psql's words are the proof that it ran.
	look := s.PSQL("postgres") + " -Atc 'select said from kept'"
	got := shell(t, "("+s.Command()+") >/dev/null 2>&1 & server=$!\n"+
		"until "+look+" 2>/dev/null; do kill -0 $server || exit 1; done\n"+
		"kill -INT $(head -n 1 "+shellLine(s.DataDir())+"/postmaster.pid); wait $server")
	if got != "seen" {
		t.Errorf("psql printed %q", got)
	}
}

func TestHostileEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGHOST": "db.invalid", "PGPORT": "1", "PGDATA": "/nonexistent", "PGUSER": "nobody", "PGDATABASE": "none",
		"PGPASSWORD": "wrong", "PGSSLMODE": "verify-full", "PGTARGETSESSIONATTRS": "standby", "PG_COLOR": "always",
		"LC_ALL": "xx_YY.UTF-8", "LC_MESSAGES": "xx_YY", "LANG": "xx_YY", "LANGUAGE": "xx", "TZ": "Nowhere/Atall",
	} {
		t.Setenv(name, value)
	}
	s := mustStart(t, Config{NoSync: true})
	wantQuery(t, s, "select 'connected'", "connected")
	wantQuery(t, s, "show timezone", "UTC")

	// These no connection string overrides.
	for name, value := range map[string]string{
		"PGSERVICE": "none", "PGSERVICEFILE": "/nonexistent", "PGOPTIONS": "-c search_path=none", "PGTZ": "Nowhere/Atall",
		"PGREQUIREAUTH": "scram-sha-256", "PGMINPROTOCOLVERSION": "latest",
	} {
		t.Setenv(name, value)
	}
	if err := UnsetClientEnv(); err != nil {
		t.Fatal(err)
	}
	wantQuery(t, s, "select current_setting('search_path') || '|' || current_setting('timezone')", `"$user", public|UTC`)
}

func TestStartEndsWithItsContext(t *testing.T) {
	bin := fakeBinaries(t, filepath.Join(newDir(t), "bin"), "15.0", "echo about to hang >&2; exec sleep 3600")
	tmp := newDir(t)
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, Config{BinDir: bin})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "about to hang") {
		t.Errorf("got %v, want DeadlineExceeded and the log", err)
	}
	// Gone with all of its processes: the folder is removed once none of them holds its lock.
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	_, err := Start(t.Context(), Config{DataDir: sharedDir(t), NoSync: true, Settings: map[string]string{"max_connections": "many"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "max_connections"`) {
		t.Errorf("got %v, want PostgreSQL's words", err)
	}
}

func TestStopTwiceAtOnce(t *testing.T) {
	s := mustStart(t, Config{DataDir: sharedDir(t), NoSync: true})
	other := make(chan error)
	go func() { other <- s.Stop(t.Context()) }()
	if err := errors.Join(s.Stop(t.Context()), <-other, s.Kill(t.Context())); err != nil {
		t.Error(err)
	}
	<-s.Done()
}

func TestStopWithAnEndedContextStillStops(t *testing.T) {
	s := mustStart(t, Config{DataDir: sharedDir(t), NoSync: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if !s.process.ended() {
		t.Error("the server is still there")
	}
	mustStart(t, Config{DataDir: sharedDir(t), NoSync: true})
}

func TestServerThatEndsByItselfIsReported(t *testing.T) {
	s := mustStart(t, Config{DataDir: sharedDir(t), NoSync: true})
	if err := s.process.signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("got %v", err)
	}
}

package pgtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

// tests stands for a testing.M.
type tests func() int

func (f tests) Run() int { return f() }

func TestKeptServerCanBeLookedInto(t *testing.T) {
	t.Parallel()
	b := binary{keep: true}
	r := newRecorder(t)
	var server *pglaunch.Server
	code := b.main(tests(func() int {
		r.run(func() {
			url := b.database(r)
			server = b.server
			if _, err := Pool(r, url).Exec(r.Context(), "create table kept as select 'what the test wrote' as said"); err != nil {
				r.Fatal(err)
			}
			r.Error("as a test does")
		})
		return 7
	}))
	if code != 7 {
		t.Errorf("exit code %d, want that of the tests", code)
	}
	select {
	case <-server.Done():
	default:
		t.Fatal("the server is still there")
	}
	defer func() {
		if err := os.RemoveAll(filepath.Dir(server.DataDir())); err != nil {
			t.Error(err)
		}
	}()

	// The command lines of the message, as a person would paste them.
	_, lines, found := strings.Cut(r.output(), "start its server with\n  ")
	if !found {
		t.Fatalf("no word of how to look into it: %s", r.output())
	}
	start, look, _ := strings.Cut(lines, "\nand look into it with\n  ")
	script := "(" + start + ") >/dev/null 2>&1 & server=$!\n" +
		"until " + look + " -Atc 'select said from kept' 2>/dev/null; do kill -0 $server || exit 1; done\n" +
		"kill -INT $(head -n 1 " + server.DataDir() + "/postmaster.pid); wait $server"
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", script).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "what the test wrote" {
		t.Errorf("%v\n%s\n%s", err, script, out)
	}
}

func TestServerThatWasNamedIsUsed(t *testing.T) {
	t.Parallel()
	b := binary{url: Database(t)}
	r := newRecorder(t)
	var url string
	code := b.main(tests(func() int {
		r.run(func() {
			url = b.database(r)
			r.Error("as a test does")
		})
		return 0
	}))
	if code != 0 || b.server != nil {
		t.Errorf("code %d, private server %v", code, b.server)
	}
	name := databaseName(t, url)
	if got := query(t, url, "select current_database()"); got != name || !isThere(t, name) {
		t.Errorf("got %s, want %s", got, name)
	}
	if !strings.Contains(r.output(), name) || !strings.Contains(r.output(), urlVariable) {
		t.Errorf("no word of where it is: %s", r.output())
	}
	if err := drop(t.Context(), b.url, name); err != nil {
		t.Error(err)
	}
}

func TestWithoutMainNothingIsStarted(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	var b binary
	r.run(func() { b.database(r) })
	if !r.Failed() || !strings.Contains(r.output(), "func TestMain") || b.server != nil {
		t.Errorf("failed %v: %s", r.Failed(), r.output())
	}
}

func TestWithoutServerTestsFail(t *testing.T) {
	t.Setenv("CONNECT_IDEMPOTENCY_PG_BIN", filepath.Join(t.TempDir(), "none"))
	var b binary
	b.main(tests(func() int {
		for range 2 {
			r := newRecorder(t)
			r.run(func() { b.database(r) })
			if !r.Failed() || !strings.Contains(r.output(), "none") {
				t.Errorf("failed %v: %s", r.Failed(), r.output())
			}
		}
		return 0
	}))
}

func TestHintNamesBothWays(t *testing.T) {
	t.Parallel()
	hint := withHint(pglaunch.ErrNoBinaries).Error()
	for _, want := range []string{"apt-get install postgresql", "CONNECT_IDEMPOTENCY_PG_BIN", urlVariable} {
		if !strings.Contains(hint, want) {
			t.Errorf("no %s in %s", want, hint)
		}
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for _, connString := range []string{
		"postgres://me:p%2Fw@db.example:5433/old?sslmode=disable",
		"postgresql://me:p%2Fw@db.example:5433?dbname=old&sslmode=disable",
		"postgres://me:p%2Fw@/old?host=db.example&port=5433&database=old",
		"host=db.example port=5433 user=me password='p/w' dbname=old",
		"host=db.example port=5433 user=me password=p/w",
		"postgres://me:p%2Fw@db.example:5433,standby.example:5433/old",
	} {
		got, err := withDatabase(connString, "new")
		if err != nil {
			t.Fatal(err)
		}
		config, err := pgx.ParseConfig(got)
		if err != nil {
			t.Fatal(err)
		}
		if config.Database != "new" || config.Host != "db.example" || config.Port != 5433 || config.User != "me" || config.Password != "p/w" {
			t.Errorf("%s became %s", connString, got)
		}
	}
	if got, err := withDatabase("postgres://me:secret@db.example:port/old", "new"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %s, %v", got, err)
	}
}

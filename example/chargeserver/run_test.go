package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

// running is a run within the test's own process.
type running struct {
	banner string
	slow   *slowCard
	log    lines
	stop   context.CancelFunc // as ^C does
	ended  <-chan error
}

// startRun returns once the banner is printed, or the run has failed, whose error it returns.
func startRun(t *testing.T, launch launcher, flags ...string) (*running, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	printed, log, ended := make(lines, 1), make(lines, 100), make(chan error, 1)
	c := mustParse(t, append([]string{"-addr", "localhost:0"}, flags...)...)
	slow := newSlowCard()
	o := outside{launch: launch, slow: slow.wait, out: printed, log: slog.New(slog.NewTextHandler(log, nil))}
	go func() { ended <- run(ctx, c, o) }()
	select {
	case banner := <-printed:
		return &running{banner: banner, slow: slow, log: log, stop: cancel, ended: ended}, nil
	case err := <-ended:
		return nil, err
	}
}

func mustRun(t *testing.T, launch launcher, flags ...string) *running {
	t.Helper()
	r, err := startRun(t, launch, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustEnd stops the run, which must end without an error.
func (r *running) mustEnd(t *testing.T) {
	t.Helper()
	r.stop()
	if err := receive(t, r.ended, "the end of the run"); err != nil {
		t.Error(err)
	}
}

// client calls the server at the address that the banner names.
func (r *running) client(t *testing.T) *rig {
	t.Helper()
	url := urlIn(t, r.banner)
	return &rig{caller: newCaller(t, url), url: url, slow: r.slow}
}

const listens = "chargeserver listens on "

func urlIn(t *testing.T, banner string) string {
	t.Helper()
	_, rest, ok := strings.Cut(banner, listens)
	url, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("the banner does not say where the server listens:\n%s", banner)
	}
	return url
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func TestWithoutPostgreSQLItRunsInMemoryAndSaysSo(t *testing.T) {
	t.Parallel()
	r := mustRun(t, nothingInstalled)
	mustContain(t, r.banner, "NOTHING IS KEPT", "apt-get install postgresql", "leased:", "buf curl")
	if strings.Contains(r.banner, "psql") || strings.Contains(r.banner, "IS NOT USED") {
		t.Errorf("there is no psql and nothing was asked for:\n%s", r.banner)
	}
	c := r.client(t)
	id, _ := c.mustCharge(t, "k", "tok_ok")
	if again, replayed := c.mustCharge(t, "k", "tok_ok"); again != id || !replayed {
		t.Errorf("got %s, a replay: %v; want a replay of %s", again, replayed, id)
	}
	r.mustEnd(t)
}

func TestAModeThatMemoryCannotHaveIsSaid(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{transactional, leased} {
		r := mustRun(t, nothingInstalled, "-mode", string(m))
		mustContain(t, r.banner, "-mode "+string(m)+" IS NOT USED")
		r.mustEnd(t)
	}
}

func TestANamedDatabaseIsUsed(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	forbidden := func(context.Context, pglaunch.Config) (*pglaunch.Server, error) {
		t.Error("a private server was started")
		return nil, pglaunch.ErrNoBinaries
	}
	r := mustRun(t, forbidden, "-database-url", url, "-mode", "leased", "-data-dir", t.TempDir())
	mustContain(t, r.banner, "the PostgreSQL database of -database-url", "leased:", "psql -h ", "-data-dir is not used")
	id, _ := r.client(t).mustCharge(t, "k", "tok_ok")
	r.mustEnd(t)

	var kept string
	err := pgtest.Pool(t, url).QueryRow(t.Context(), "select id from charges").Scan(&kept)
	if err != nil || kept != id {
		t.Errorf("the table has %s, want %s: %v", kept, id, err)
	}
}

func TestServersThatStartTogetherShareADatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			r, err := startRun(t, nothingInstalled, "-database-url", url)
			if err != nil {
				t.Error(err)
				return
			}
			r.stop()
			if err := <-r.ended; err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
}

func TestAnAddressInUseIsFoundOutBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	forbidden := func(context.Context, pglaunch.Config) (*pglaunch.Server, error) {
		t.Error("a private server was started")
		return nil, pglaunch.ErrNoBinaries
	}
	_, err = startRun(t, forbidden, "-addr", listener.Addr().String())
	if _, ok := errors.AsType[*net.OpError](err); !ok {
		t.Errorf("got %v", err)
	}
}

// launchFast is pglaunch.Start without waits for the disk. It hands on each server.
func launchFast(started chan<- *pglaunch.Server) launcher {
	return func(ctx context.Context, c pglaunch.Config) (*pglaunch.Server, error) {
		c.NoSync = true
		s, err := pglaunch.Start(ctx, c)
		if err == nil {
			started <- s
		}
		return s, err
	}
}

func TestItEndsWithItsPrivateDatabase(t *testing.T) {
	t.Parallel()
	started := make(chan *pglaunch.Server, 1)
	r := mustRun(t, launchFast(started), "-data-dir", pgtest.Dir(t))
	server := receive(t, started, "the private server")
	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, r.ended, "the end of the run"); err == nil || !strings.Contains(err.Error(), "the private database ended") {
		t.Errorf("got %v", err)
	}
}

func TestTwoCannotShareADataFolder(t *testing.T) {
	t.Parallel()
	dir, started := pgtest.Dir(t), make(chan *pglaunch.Server, 2)
	first := mustRun(t, launchFast(started), "-data-dir", dir)
	_, err := startRun(t, launchFast(started), "-data-dir", dir)
	if !errors.Is(err, pglaunch.ErrInUse) || !strings.Contains(err.Error(), "another -data-dir") {
		t.Errorf("got %v", err)
	}
	first.mustEnd(t)
}

func TestAStopDuringTheStartIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	launch := func(ctx context.Context, _ pglaunch.Config) (*pglaunch.Server, error) {
		cancel()
		return nil, context.Cause(ctx)
	}
	if err := run(ctx, mustParse(t, "-addr", "localhost:0"), outside{launch: launch}); err != nil {
		t.Error(err)
	}
}

func TestABadDatabaseURLIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hush@localhost:bad/db", "postgres://u:hush@localhost:1/db"} {
		_, err := startRun(t, nothingInstalled, "-database-url", url)
		if err == nil || !strings.HasPrefix(err.Error(), "-database-url: ") || strings.Contains(err.Error(), "hush") {
			t.Errorf("got %v", err)
		}
	}
}

func TestACallInFlightIsAnsweredBeforeTheEnd(t *testing.T) {
	t.Parallel()
	r := mustRun(t, nothingInstalled, "-database-url", pgtest.Database(t))
	got := r.client(t).callSlow(t, t.Context())
	r.stop()
	mustContain(t, receive(t, r.log, "a line of the log"), "stopping")
	r.slow.goOn()
	if a := receive(t, got, "the call's answer"); a.err != nil {
		t.Error(a.err)
	}
	r.mustEnd(t)
}

func TestTheBannerNamesAnAddressToCall(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"localhost:0":    "localhost:80",
		":0":             "localhost:80",
		"0.0.0.0:0":      "localhost:80",
		"[::]:0":         "localhost:80",
		"[::1]:0":        "[::1]:80",
		"10.1.2.3:http":  "10.1.2.3:80",
		"example.org:80": "example.org:80",
	} {
		if got := hostPort(asked, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}); got != want {
			t.Errorf("%s: got %s, want %s", asked, got, want)
		}
	}
}

func TestABannerThatCannotBePrintedEndsTheRun(t *testing.T) {
	t.Parallel()
	closed, w := io.Pipe()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), mustParse(t, "-addr", "localhost:0"),
		outside{launch: nothingInstalled, out: w, log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

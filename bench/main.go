// Command bench measures what the guard costs, beside the same work done by hand, on a private PostgreSQL as it is
// configured by default:
//
//	go run ./bench
//
// All variants take turns in one run, round by round, so that a noisy machine hits all alike. What counts are the ratios
// of the rounds, with their spread. The report goes to standard output and, with plots, to docs/benchmarks. With -help it
// lists its flags.
//
// Where a number is not what it should be, a profile says why:
//
//	go run ./bench -only '^(transactional|least-pipelined)$' -profile /tmp/profiles
//	go tool pprof -top /tmp/profiles/base-transactional.pprof
//
// With -profile each variant takes one more turn after the rounds, as long as all of them together, whose CPU profile is
// written to a file named for its group, its condition there and the variant. Nothing of that turn is counted, so that the
// profiler costs no number anything. Clients and server are in it, and the database, which is another process, is not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

func main() { os.Exit(program()) }

// program returns the code to exit with.
func program() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	if err := bench(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// bench measures, and reports.
func bench(ctx context.Context, c config) error {
	for _, dir := range []string{c.out, c.profile} { // first, so that a folder that cannot be written is found out at once
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is for all to read
			return err
		}
	}
	p := newProgress(os.Stderr)
	r, err := record(ctx, c, p)
	p.done()
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(r.markdown(false)); err != nil {
		return err
	}
	if c.out == "" {
		return nil
	}
	return r.write(c.out)
}

// recording is all that one run has measured.
type recording struct {
	machine   machine
	config    config
	began     time.Time
	took      time.Duration
	base      results
	callers   results
	messages  results
	rows      results
	transport results
	hot       []hotKey
	sweeping  []sweeping
	inProcess []inProcess
}

func record(ctx context.Context, c config, p *progress) (_ *recording, err error) {
	p.say("starting a database")
	d, err := startDatabase(ctx, pglaunch.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	r := &recording{machine: thisMachine(d.server.Version()), config: c, began: time.Now()}
	for _, part := range []func(context.Context, *database, *progress) error{
		r.measureBase, r.measureCallers, r.measureMessages, r.measureTransport, r.measureAlone, r.measureRows,
	} {
		if err := part(ctx, d, p); err != nil {
			return nil, err
		}
	}
	r.took = time.Since(r.began)
	return r, nil
}

// Command chargeserver is a small charging service whose retried calls run once. It needs no set-up:
//
//	go run ./example/chargeserver
//
// It starts a private PostgreSQL server from the binaries that are installed on the machine, keeps its data for the next
// start, and prints what to paste to call it and to look into its tables. With -help it lists its flags.
//
// Every caller shares one scope, since there is no authentication. A server of yours settles whose a key is with
// idempotency.WithScope.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
)

// stopTimeout bounds a graceful stop. It has room for the slowest call, of tok_slow.
const stopTimeout = 15 * time.Second

func main() { os.Exit(program(slowly)) }

// program runs the server as the command line says, until a signal ends it, and returns the code to exit with.
func program(slow func(context.Context) error) int {
	signalled, reset := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer reset()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	context.AfterFunc(signalled, func() {
		reset() // first, so that the next ^C ends the process at once
		cancel()
	})
	c, err := parseFlags(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // it has been printed
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, c, outside{launch: pglaunch.Start, slow: slow, out: os.Stdout, log: log}); err != nil {
		fmt.Fprintln(os.Stderr, "chargeserver:", err)
		return 1
	}
	return 0
}

// outside is what a run needs of the world around it.
type outside struct {
	launch launcher
	slow   func(context.Context) error // what tok_slow does
	out    io.Writer                   // for the banner
	log    *slog.Logger
}

// run serves until ctx ends, then stops gracefully.
func run(ctx context.Context, c config, o outside) (err error) {
	// Before the database, so that an address in use is found out at once. Calls that come too early wait to be accepted.
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	b, err := openBackend(ctx, c, o.launch, o.log)
	if err != nil {
		return errors.Join(unlessStopped(ctx, err), listener.Close())
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	guard, err := newGuard(b.store, c, o.log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer startSweeping(ctx, b.store, c.sweepEvery, o.log)() // stopped before the database is closed
	server := newHTTPServer(newMux(newService(b.ledger, newCards(o.slow), o.log), guard), o.log)

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err = printBanner(o.out, c, b, listener.Addr()); err == nil {
		select {
		case <-ctx.Done():
			o.log.LogAttrs(ctx, slog.LevelInfo, "stopping; ^C again ends at once")
		case err = <-failed:
		case <-b.ended:
			err = errors.New("the private database ended by itself")
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, stopServing(stopCtx, server), guard.Close(stopCtx))
}

// unlessStopped returns nil for what failed because ctx ended: a ^C during the start is no failure.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// stopServing lets calls end, and cuts off those that last longer than ctx.
func stopServing(ctx context.Context, server *http.Server) error {
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("calls were cut off: %w", errors.Join(err, server.Close()))
	}
	return nil
}

package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// stopTimeout bounds a graceful stop.
const stopTimeout = 20 * time.Second

// Run serves until SIGTERM, then stops gracefully and says on out what it left over.
func Run(c Config, out io.Writer) error {
	ctx, reset := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer reset()
	before := runtime.NumGoroutine()
	log, err := journal.Create(c.Journal)
	if err != nil {
		return err
	}
	broken, err := newRewriter(c.Break)
	if err != nil {
		return err
	}
	if err := serve(ctx, c, log, broken, out); err != nil {
		return errors.Join(err, log.Close())
	}
	stopped := Stopped{Goroutines: leftOver(before)}
	if broken != nil {
		stopped.Rewritten = int(broken.count.Load())
	}
	if stopped.Goroutines > 0 {
		err = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(stopped), log.Close())
}

// leftOver returns how many goroutines there are beyond those of before, once they had time to end.
func leftOver(before int) int {
	for deadline := time.Now().Add(3 * time.Second); ; {
		extra := runtime.NumGoroutine() - before
		if extra <= 0 || time.Now().After(deadline) {
			return max(extra, 0)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// serve serves until ctx ends, and then lets calls end.
func serve(ctx context.Context, c Config, log *journal.Writer, broken *rewriter, out io.Writer) error {
	pool, err := newPool(ctx, c, broken)
	if err != nil {
		return err
	}
	defer pool.Close()
	st, err := newStore(c, pool)
	if err != nil {
		return err
	}
	recorded := &recorder{Store: st, log: log}
	guard, err := newGuard(c, recorded, log)
	if err != nil {
		return err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	h := &handler{pool: pool, log: log, slot: c.Slot, lease: c.Lease, bank: &bank{client: &http.Client{Transport: transport}, url: c.BankURL}}
	mux := http.NewServeMux()
	mux.Handle(chargesv1connect.NewChargeServiceHandler(h, connect.WithInterceptors(interceptor.New(guard))))
	(&control{pool: pool}).handle(mux)

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := newHTTPServer(mux)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	stopSweeping := sweep(ctx, recorded)
	defer stopSweeping()
	if err := json.NewEncoder(out).Encode(Ready{Addr: listener.Addr().String()}); err != nil {
		return err
	}
	select {
	case err = <-failed:
		return err
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(server.Shutdown(stopCtx), guard.Close(stopCtx))
}

func newPool(ctx context.Context, c Config, broken *rewriter) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	if broken != nil {
		config.ConnConfig.DialFunc = broken.dial(config.ConnConfig.DialFunc)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

func newStore(c Config, pool *pgxpool.Pool) (*postgres.Store, error) {
	if c.Transactional {
		return postgres.NewTransactional(pool, postgres.WithTimeout(c.Timeout))
	}
	return postgres.New(pool, postgres.WithTimeout(c.Timeout))
}

func newGuard(c Config, st store.Store, log *journal.Writer) (*idempotency.Guard, error) {
	return idempotency.New(st,
		idempotency.WithSingleScope(),
		idempotency.WithKeyRequired(),
		idempotency.WithLease(c.Lease),
		idempotency.WithWaiting(c.Wait),
		idempotency.WithTTL(c.TTL),
		idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
			log.Write(journal.Event{Kind: journal.Outcome, Text: string(e.Outcome)})
		}))
}

// newHTTPServer serves HTTP/1.1, and HTTP/2 without TLS, which gRPC needs.
func newHTTPServer(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelInfo),
	}
}

// sweep sweeps until the function that it returns is called. Nothing expires while a run lasts, so that a row that it
// deletes is missed.
func sweep(ctx context.Context, st store.Store) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var sweeping sync.WaitGroup
	sweeping.Go(func() { store.Sweeper{Store: st, Every: time.Second}.Run(ctx) })
	return func() {
		cancel()
		sweeping.Wait()
	}
}

// Main is a target's main function, and returns the code to exit with.
func Main(c Config) int {
	if err := Run(c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "faultkit target:", err)
		return 1
	}
	return 0
}

package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// maxRequest is the size of the largest request that is read, in bytes.
const maxRequest = 64 << 10

// newGuard makes the guard. Extra options come last.
func newGuard(s store.Store, c config, log *slog.Logger, extra ...idempotency.Option) (*idempotency.Guard, error) {
	opts := []idempotency.Option{
		idempotency.WithSingleScope(), // there is no authentication, so nobody to tell apart
		idempotency.WithTTL(c.ttl),
		idempotency.WithObserver(logOutcome(log)),
		idempotency.WithLogger(log),
	}
	if c.requireKey {
		opts = append(opts, idempotency.WithKeyRequired())
	}
	return idempotency.New(s, append(opts, extra...)...)
}

// newMux guards the service, and puts reflection and health beside it.
func newMux(svc chargesv1connect.ChargeServiceHandler, guard *idempotency.Guard) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(chargesv1connect.NewChargeServiceHandler(svc,
		connect.WithInterceptors(interceptor.New(guard)),
		connect.WithReadMaxBytes(maxRequest)))
	reflector := grpcreflect.NewStaticReflector(chargesv1connect.ChargeServiceName, grpchealth.HealthV1ServiceName)
	mux.Handle(grpcreflect.NewHandlerV1(reflector))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(chargesv1connect.ChargeServiceName)))
	return mux
}

// newHTTPServer serves HTTP/1.1, and HTTP/2 without TLS, which gRPC needs.
func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// logOutcome logs each guarded call in one line.
func logOutcome(log *slog.Logger) idempotency.Observer {
	return func(ctx context.Context, e idempotency.Event) {
		attrs := []slog.Attr{
			slog.String("procedure", e.Procedure),
			slog.String("outcome", string(e.Outcome)),
			slog.Duration("duration", e.Duration.Round(time.Microsecond)),
			slog.String("key_digest", e.KeyDigest),
		}
		level := slog.LevelInfo
		if e.Outcome == idempotency.Failed {
			level = slog.LevelError
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		log.LogAttrs(ctx, level, "call", attrs...)
	}
}

// startSweeping sweeps expired keys, unless every is 0, until the function that it returns is called.
func startSweeping(ctx context.Context, s store.Store, every time.Duration, log *slog.Logger) (stop func()) {
	if every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	sweeper := store.Sweeper{Store: s, Every: every, Swept: func(deleted int, err error) {
		switch {
		case err != nil:
			log.LogAttrs(ctx, slog.LevelWarn, "a sweep failed", slog.Any("error", err))
		case deleted > 0:
			log.LogAttrs(ctx, slog.LevelInfo, "swept expired keys", slog.Int("deleted", deleted))
		}
	}}
	var sweeping sync.WaitGroup
	sweeping.Go(func() { sweeper.Run(ctx) })
	return func() {
		cancel()
		sweeping.Wait()
	}
}

// Package steps_test kills a server, a process of its own, at each step of a call's flow, and has another one take the
// client's retry.
package steps_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// programVariable makes the test binary a server; it holds a config.
const programVariable = "STEPS_TEST_SERVER"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(programVariable); ok {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The tests wait more than they compute. A -parallel on the command line has the last word.
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	pgtest.Main(m)
}

// config says what a server is.
type config struct {
	Name          string // by which the database knows its connections
	DatabaseURL   string
	Transactional bool
	Lease         time.Duration
}

// serve prints where it listens, serves until its input ends, and then stops gracefully.
func serve(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := newPool(ctx, c)
	if err != nil {
		return err
	}
	defer pool.Close()
	newStore := postgres.New
	if c.Transactional {
		newStore = postgres.NewTransactional
	}
	st, err := newStore(pool)
	if err != nil {
		return err
	}
	// Without renewals, which would come between the flights that are counted.
	guard, err := idempotency.New(st, idempotency.WithSingleScope(), idempotency.WithKeyRequired(),
		idempotency.WithLease(c.Lease), idempotency.WithoutRenewal())
	if err != nil {
		return err
	}
	_, handler := chargesv1connect.NewChargeServiceHandler(&service{pool: pool}, connect.WithInterceptors(interceptor.New(guard)))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: limit}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Println(listener.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ctx), guard.Close(ctx))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// newPool makes a pool of one connection, on which nothing but calls sends anything.
func newPool(ctx context.Context, c config) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.ConnConfig.RuntimeParams["application_name"] = c.Name
	return pgxpool.NewWithConfig(ctx, config)
}

// effectsSQL makes the table of what handlers did.
const effectsSQL = `
create table effects (
  key       text        not null, -- the client's
  charge    text        not null, -- the key for another system, by which it would know the charge
  run       text        not null, -- of the handler
  statement integer     not null,
  at        timestamptz not null default clock_timestamp()
)`

// statements is how many statements a handler sends, each in a flight of its own.
const statements = 2

// service is a ChargeService with nothing but CreateCharge.
type service struct {
	chargesv1connect.UnimplementedChargeServiceHandler

	pool *pgxpool.Pool
}

// CreateCharge has effects, and answers with what they are known by.
func (s *service) CreateCharge(
	ctx context.Context, _ *connect.Request[chargesv1.CreateChargeRequest],
) (*connect.Response[chargesv1.CreateChargeResponse], error) {
	info, ok := idempotency.FromContext(ctx)
	if !ok {
		return nil, connect.NewError(connect.CodeDataLoss, errors.New("the handler runs without a claim"))
	}
	charge, run := info.DerivedKey("charge"), rand.Text()
	for n := range statements {
		_, err := postgres.Querier(ctx, s.pool).Exec(ctx,
			"insert into effects (key, charge, run, statement) values ($1, $2, $3, $4)", info.Key, charge, run, n+1)
		if err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	return connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{
		Id: charge, Description: run, Amount: int64(info.Attempt),
	}}), nil
}

package interceptor_test

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// newHandler is a server's wiring: a store, a guard, an interceptor, and a sweeper that runs until ctx ends.
func newHandler(ctx context.Context, pool *pgxpool.Pool, svc chargesv1connect.ChargeServiceHandler) (http.Handler, error) {
	keys, err := postgres.NewTransactional(pool)
	if err != nil {
		return nil, err
	}
	if err := keys.Migrate(ctx); err != nil {
		return nil, err
	}
	guard, err := idempotency.New(keys, idempotency.WithScope(tenantOf))
	if err != nil {
		return nil, err
	}
	go store.Sweeper{Store: keys}.Run(ctx)
	mux := http.NewServeMux()
	mux.Handle(chargesv1connect.NewChargeServiceHandler(svc, connect.WithInterceptors(interceptor.New(guard))))
	return mux, nil
}

// tenantKey is where the server's authentication leaves the tenant.
type tenantKey struct{}

func tenantOf(ctx context.Context, _ idempotency.Call) (string, error) {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return "", connect.NewError(connect.CodeUnauthenticated, nil)
	}
	return tenant, nil
}

type (
	createChargeRequest  = connect.Request[chargesv1.CreateChargeRequest]
	createChargeResponse = connect.Response[chargesv1.CreateChargeResponse]
)

// charger is a handler. It knows nothing of keys: what it writes through Querier commits with its reply.
type charger struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	pool *pgxpool.Pool
}

func (c charger) CreateCharge(ctx context.Context, req *createChargeRequest) (*createChargeResponse, error) {
	db := postgres.Querier(ctx, c.pool)
	charge := &chargesv1.Charge{Amount: req.Msg.Amount, Currency: req.Msg.Currency}
	err := db.QueryRow(ctx, "insert into charges (amount, currency) values ($1, $2) returning id::text", charge.Amount, charge.Currency).
		Scan(&charge.Id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: charge}), nil
}

// A server whose retried calls run once.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/charges")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	handler, err := newHandler(ctx, pool, charger{pool: pool})
	if err != nil {
		panic(err)
	}
	server := &http.Server{Addr: "localhost:8080", Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	if err := server.ListenAndServe(); err != nil {
		panic(err)
	}
}

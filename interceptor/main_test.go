package interceptor_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// protocols are all that a Connect server speaks.
var protocols = map[string][]connect.ClientOption{
	"connect proto": nil,
	"connect json":  {connect.WithProtoJSON()},
	"grpc":          {connect.WithGRPC()},
	"grpc-web":      {connect.WithGRPCWeb()},
}

// backend is a store with the pool that its handlers write through; the memory store has none.
type backend struct {
	store store.Store
	pool  *pgxpool.Pool
}

var backends = map[string]func(*testing.T) backend{
	"memory":        func(*testing.T) backend { return backend{store: memory.New()} },
	"leased":        func(t *testing.T) backend { return onPostgres(t, postgres.New, 8) },
	"transactional": func(t *testing.T) backend { return onPostgres(t, postgres.NewTransactional, 8) },
}

// onPostgres makes a store, its table and a table of effects, on a pool of so many connections.
func onPostgres(t testing.TB, makeStore func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error), conns int32) backend {
	t.Helper()
	return onDatabase(t, pgtest.Database(t), makeStore, conns)
}

// onDatabase is onPostgres in a database that is there.
func onDatabase(t testing.TB, url string, makeStore func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error), conns int32,
	opts ...postgres.Option,
) backend {
	t.Helper()
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) { c.MaxConns = conns })
	s, err := makeStore(pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table effects (description text not null)"); err != nil {
		t.Fatal(err)
	}
	return backend{store: s, pool: pool}
}

// effect is what a handler does that must not be done twice.
func (b backend) effect(ctx context.Context, description string) error {
	_, err := postgres.Querier(ctx, b.pool).Exec(ctx, "insert into effects values ($1)", description)
	return err
}

func (b backend) effects(t *testing.T) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(t.Context(), "select count(*) from effects").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (b backend) guard(t testing.TB, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(b.store, append([]idempotency.Option{idempotency.WithSingleScope()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close the guard: %v", err)
		}
	})
	return g
}

type (
	createRequest  = *connect.Request[chargesv1.CreateChargeRequest]
	createResponse = *connect.Response[chargesv1.CreateChargeResponse]
	refundRequest  = *connect.Request[chargesv1.RefundChargeRequest]
	refundResponse = *connect.Response[chargesv1.RefundChargeResponse]
	listRequest    = *connect.Request[chargesv1.ListChargesRequest]
	listStream     = *connect.ServerStream[chargesv1.ListChargesResponse]
)

// service answers as each test says.
type service struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	create func(context.Context, createRequest) (createResponse, error)
	refund func(context.Context, refundRequest) (refundResponse, error)
}

func (s service) CreateCharge(ctx context.Context, req createRequest) (createResponse, error) {
	return s.create(ctx, req)
}

func (s service) RefundCharge(ctx context.Context, req refundRequest) (refundResponse, error) {
	return s.refund(ctx, req)
}

func (service) GetCharge(context.Context, *connect.Request[chargesv1.GetChargeRequest]) (*connect.Response[chargesv1.GetChargeResponse], error) {
	return connect.NewResponse(new(chargesv1.GetChargeResponse)), nil
}

func (service) ListCharges(_ context.Context, _ listRequest, stream listStream) error {
	return stream.Send(new(chargesv1.ListChargesResponse))
}

// server is a real server over HTTP/1.1 and HTTP/2 without TLS.
type server struct{ *httptest.Server }

func serve(t testing.TB, handler http.Handler) server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return server{s}
}

// guarded serves svc behind a guard's interceptor; outer interceptors stand before it.
func guarded(t testing.TB, g *idempotency.Guard, svc service, outer ...connect.Interceptor) server {
	t.Helper()
	_, handler := chargesv1connect.NewChargeServiceHandler(svc,
		connect.WithInterceptors(append(outer, interceptor.New(g))...))
	return serve(t, handler)
}

// client speaks one protocol, over HTTP/2.
func (s server) client(t testing.TB, protocol string) chargesv1connect.ChargeServiceClient {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return chargesv1connect.NewChargeServiceClient(&http.Client{Transport: transport}, s.URL, protocols[protocol]...)
}

// charge is a request with a key; without one where key is empty.
func charge(key, description string) createRequest {
	req := connect.NewRequest(&chargesv1.CreateChargeRequest{
		Amount: 1299, Currency: "USD", CardToken: "tok_ok", Description: description,
	})
	if key != "" {
		req.Header().Set("Idempotency-Key", key)
	}
	return req
}

func created(id string) createResponse {
	return connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: id}})
}

// within bounds a call that must not hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// onSameDatabase makes another pool on b's database.
func onSameDatabase(t *testing.T, b backend) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, b.pool.Config().ConnString())
}

package connectv2_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectinprocess"
	"github.com/jackc/pgx/v5/pgxpool"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// inProcess is the protocol of a client that has its server in its own process.
const inProcess = "in-process"

// protocols are all ways to call a server.
var protocols = map[string][]connecthttp.Option{
	"connect proto": nil,
	"connect json":  {connecthttp.WithProtoJSON()},
	"grpc":          {connecthttp.WithGRPC()},
	"grpc json":     {connecthttp.WithGRPC(), connecthttp.WithProtoJSON()},
	"grpc-web":      {connecthttp.WithGRPCWeb()},
	inProcess:       nil,
}

// backend is a store with the pool that its handlers write through; the memory store has none.
type backend struct {
	store store.Store
	pool  *pgxpool.Pool
}

var backends = map[string]func(*testing.T) backend{
	"memory":        func(*testing.T) backend { return backend{store: memory.New()} },
	"leased":        func(t *testing.T) backend { return onPostgres(t, postgres.New) },
	"transactional": func(t *testing.T) backend { return onPostgres(t, postgres.NewTransactional) },
}

// databases are the backends whose handlers have effects.
var databases = map[string]func(*testing.T) backend{
	"leased":        backends["leased"],
	"transactional": backends["transactional"],
}

// onPostgres makes a store, its table and a table of effects.
func onPostgres(t *testing.T, makeStore func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error)) backend {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 8 })
	s, err := makeStore(pool)
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

func (b backend) guard(t *testing.T, opts ...idempotency.Option) *idempotency.Guard {
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
	createRequest  = *chargesv1.CreateChargeRequest
	createResponse = *chargesv1.CreateChargeResponse
	createFunc     = func(context.Context, createRequest) (createResponse, error)
)

// service answers as each test says.
type service struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	create createFunc
}

func (s service) CreateCharge(ctx context.Context, req createRequest) (createResponse, error) {
	return s.create(ctx, req)
}

func (service) RefundCharge(context.Context, *chargesv1.RefundChargeRequest) (*chargesv1.RefundChargeResponse, error) {
	return new(chargesv1.RefundChargeResponse), nil
}

func (service) GetCharge(context.Context, *chargesv1.GetChargeRequest) (*chargesv1.GetChargeResponse, error) {
	return new(chargesv1.GetChargeResponse), nil
}

func (service) ListCharges(_ context.Context, _ *chargesv1.ListChargesRequest, stream chargesv1connect.ChargeServiceListChargesServerStream) error {
	return stream.Send(new(chargesv1.ListChargesResponse))
}

// server is reached over HTTP/2 without TLS, and within the process.
type server struct {
	inner *connect.Server
	url   string
}

func serve(t *testing.T, inner *connect.Server) server {
	t.Helper()
	mux := http.NewServeMux()
	connecthttp.Mount(mux, inner)
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return server{inner: inner, url: s.URL}
}

// guarded serves create behind a guard's interceptor; outer interceptors stand before it.
func guarded(t *testing.T, g *idempotency.Guard, create createFunc, outer ...connect.ServerInterceptor) server {
	t.Helper()
	s := connect.NewServer(append(outer, connectv2.NewServerInterceptor(g))...)
	chargesv1connect.RegisterChargeServiceHandler(s, service{create: create})
	return serve(t, s)
}

func (s server) transport(t *testing.T, protocol string) connect.Transport {
	t.Helper()
	if protocol == inProcess {
		return connectinprocess.New(s.inner)
	}
	return connecthttp.NewTransport(httpClient(t, true), s.url, protocols[protocol]...)
}

// client speaks one protocol.
func (s server) client(t *testing.T, protocol string) caller {
	t.Helper()
	return over(s.transport(t, protocol))
}

// clients are one for each protocol.
func (s server) clients(t *testing.T) map[string]caller {
	t.Helper()
	all := make(map[string]caller, len(protocols))
	for protocol := range protocols {
		all[protocol] = s.client(t, protocol)
	}
	return all
}

type caller struct {
	chargesv1connect.ChargeServiceClient
	raw *connect.Client
}

// charge calls with a key; without one where key is empty.
func (c caller) charge(t *testing.T, key, description string) answer {
	t.Helper()
	ctx, info := connect.NewClientContext(within(t))
	if key != "" {
		info.RequestHeader().Set("Idempotency-Key", key)
	}
	res, err := c.CreateCharge(ctx, request(description))
	return answerOf(t, info, res, err)
}

func request(description string) createRequest {
	return &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD", CardToken: "tok_ok", Description: description}
}

func created(id string) createResponse {
	return &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: id}}
}

func respond(context.Context, createRequest) (createResponse, error) { return created("ch_1"), nil }

// within bounds a call that must not hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

package grpcgo_test

import (
	"context"
	"net"
	"path"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// backend is a store with the pool that its handlers write through; the memory store has none.
type backend struct {
	store store.Store
	pool  *pgxpool.Pool
}

var databases = map[string]func(*testing.T) backend{
	"leased":        func(t *testing.T) backend { return onPostgres(t, postgres.New) },
	"transactional": func(t *testing.T) backend { return onPostgres(t, postgres.NewTransactional) },
}

var backends = map[string]func(*testing.T) backend{
	"memory":        func(*testing.T) backend { return backend{store: memory.New()} },
	"leased":        databases["leased"],
	"transactional": databases["transactional"],
}

// onPostgres makes a store, its table and a table of effects.
func onPostgres(t *testing.T, makeStore func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error)) backend {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 4 })
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

const (
	serviceName = "charges.v1.ChargeService"
	create      = "/" + serviceName + "/CreateCharge"
	get         = "/" + serviceName + "/GetCharge"
	list        = "/" + serviceName + "/ListCharges"
)

// createFunc is a handler; what it returns is sent as it is.
type createFunc = func(context.Context, *chargesv1.CreateChargeRequest) (any, error)

// charges is the service as protoc-gen-go-grpc would describe it.
func charges(createCharge createFunc) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			unary(create, newMessage[chargesv1.CreateChargeRequest], createCharge),
			unary(get, newMessage[chargesv1.GetChargeRequest], func(context.Context, *chargesv1.GetChargeRequest) (any, error) {
				return new(chargesv1.GetChargeResponse), nil
			}),
		},
		Streams: []grpc.StreamDesc{{StreamName: "ListCharges", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			if err := s.RecvMsg(new(chargesv1.ListChargesRequest)); err != nil {
				return err
			}
			return s.SendMsg(new(chargesv1.ListChargesResponse))
		}}},
	}
}

func newMessage[T any]() *T { return new(T) }

// unary describes a procedure.
func unary[Req any](procedure string, newRequest func() Req, handle func(context.Context, Req) (any, error)) grpc.MethodDesc {
	handler := func(srv any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		req := newRequest()
		if err := decode(req); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: procedure}
		return through(ctx, req, info, func(ctx context.Context, req any) (any, error) { return handle(ctx, req.(Req)) })
	}
	return grpc.MethodDesc{MethodName: path.Base(procedure), Handler: handler}
}

// serve starts a real server of a service behind interceptors, and returns its address.
func serve(t *testing.T, service *grpc.ServiceDesc, interceptors ...grpc.UnaryServerInterceptor) string {
	t.Helper()
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...))
	s.RegisterService(service, struct{}{})
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// conn is grpc-go's own client.
type conn struct{ *grpc.ClientConn }

func dial(t *testing.T, address string, opts ...grpc.DialOption) conn {
	t.Helper()
	c, err := grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn{c}
}

// guarded serves CreateCharge behind a guard's interceptor, and returns a client; outer interceptors stand before it.
func guarded(t *testing.T, g *idempotency.Guard, createCharge createFunc, outer ...grpc.UnaryServerInterceptor) conn {
	t.Helper()
	return dial(t, serve(t, charges(createCharge), append(outer, grpcgo.UnaryServerInterceptor(g))...))
}

// create calls CreateCharge with a key; without one where key is empty.
func (c conn) create(ctx context.Context, key, description string) answer {
	req := &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD", CardToken: "tok_ok", Description: description}
	return c.call(withKey(ctx, key), create, req, new(chargesv1.CreateChargeResponse))
}

// call puts the response in res.
func (c conn) call(ctx context.Context, procedure string, req, res proto.Message) answer {
	a := answer{message: res}
	a.err = c.Invoke(ctx, procedure, req, res, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

func withKey(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
}

func created(id string) *chargesv1.CreateChargeResponse {
	return &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: id}}
}

func respond(context.Context, *chargesv1.CreateChargeRequest) (any, error) {
	return created("ch_1"), nil
}

// within bounds a call that must not hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

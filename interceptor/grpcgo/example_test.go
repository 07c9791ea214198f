package grpcgo_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// newServer makes a server whose retried calls run once. What authenticate refuses leaves nothing behind.
func newServer(keys store.Store, authenticate grpc.UnaryServerInterceptor) (*grpc.Server, error) {
	guard, err := idempotency.New(keys, idempotency.WithScope(tenantOf))
	if err != nil {
		return nil, err
	}
	return grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, grpcgo.UnaryServerInterceptor(guard))), nil
}

// tenantKey is where the server's authentication leaves the tenant.
type tenantKey struct{}

// tenantOf returns whose a call's key is. A status that it returns reaches the client as it is.
func tenantOf(ctx context.Context, _ idempotency.Call) (string, error) {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "who are you?")
	}
	return tenant, nil
}

// authenticate stands for a real one, which would not take a client's word for it.
func authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if tenant := metadata.ValueFromIncomingContext(ctx, "x-tenant"); len(tenant) == 1 {
		ctx = context.WithValue(ctx, tenantKey{}, tenant[0])
	}
	return handler(ctx, req)
}

// payments is a handler of a service that protoc-gen-go-grpc generated. It knows nothing of keys.
type payments struct {
	testgrpc.UnimplementedTestServiceServer
	made int
}

func (p *payments) UnaryCall(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	p.made++
	return &testgrpc.SimpleResponse{Username: fmt.Sprint("payment ", p.made)}, nil
}

// Two calls with one key: the second gets the first one's answer.
func ExampleUnaryServerInterceptor() {
	server, err := newServer(memory.New(), authenticate)
	if err != nil {
		panic(err)
	}
	defer server.Stop()
	address := start(server, new(payments))

	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	client := testgrpc.NewTestServiceClient(conn)
	for _, key := range []string{"order-1", "order-1", "order-2"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), idempotency.DefaultHeader, key, "x-tenant", "acme")
		var header, trailer metadata.MD
		res, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest), grpc.Header(&header), grpc.Trailer(&trailer))
		fmt.Println(key, "→", res.GetUsername(), "replayed:", grpcgo.Replayed(header, trailer), err)
	}
	_, err = client.UnaryCall(metadata.AppendToOutgoingContext(context.Background(), idempotency.DefaultHeader, "order-3"), new(testgrpc.SimpleRequest))
	fmt.Println(err)
	// Output:
	// order-1 → payment 1 replayed: false <nil>
	// order-1 → payment 1 replayed: true <nil>
	// order-2 → payment 2 replayed: false <nil>
	// rpc error: code = Unauthenticated desc = who are you?
}

// start serves payments on a port of its own.
func start(server *grpc.Server, p *payments) string {
	testgrpc.RegisterTestServiceServer(server, p)
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		if err := server.Serve(l); err != nil {
			panic(err)
		}
	}()
	return l.Addr().String()
}

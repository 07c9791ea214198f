package grpcgo_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// newConnection makes a connection whose calls get keys, and are sent again with them.
func newConnection(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	retrier, err := client.New()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, append(opts, grpc.WithUnaryInterceptor(grpcgo.UnaryClientInterceptor(retrier)))...)
}

// The first answer is lost on its way, and the payment is made once all the same.
func ExampleUnaryClientInterceptor() {
	guard, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(lossy(1), grpcgo.UnaryServerInterceptor(guard)))
	defer server.Stop()

	conn, err := newConnection(start(server, new(payments)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	var header, trailer metadata.MD
	ctx := client.WithKey(context.Background(), "order-1") // without it the call gets a key that is new
	res, err := testgrpc.NewTestServiceClient(conn).UnaryCall(ctx, new(testgrpc.SimpleRequest), grpc.Header(&header), grpc.Trailer(&trailer))
	fmt.Println(res.GetUsername(), err, "replayed:", grpcgo.Replayed(header, trailer))
	// Output:
	// payment 1 <nil> replayed: true
}

// lossy stands for a network that loses the first n answers.
func lossy(n int) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		res, err := handler(ctx, req)
		if n--; n >= 0 {
			return nil, status.Error(codes.Unavailable, "the connection broke")
		}
		return res, err
	}
}

// A key without the interceptor: whoever retries the call sends the same one.
func ExampleSetKey() {
	ctx, err := grpcgo.SetKey(context.Background(), "order-1") // or client.NewKey()
	md, _ := metadata.FromOutgoingContext(ctx)
	fmt.Println(md.Get(idempotency.DefaultHeader), err)
	// Output:
	// [order-1] <nil>
}

package recipes_test

import (
	"context"
	"net"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
)

// grpcInOrder is the recipe.
func grpcInOrder(tracing, authenticate, validate, guard grpc.UnaryServerInterceptor) *grpc.Server {
	return grpc.NewServer(grpc.ChainUnaryInterceptor(tracing, authenticate, validate, guard))
}

func grpcGuardFirst(tracing, authenticate, validate, guard grpc.UnaryServerInterceptor) *grpc.Server {
	return grpc.NewServer(grpc.ChainUnaryInterceptor(guard, tracing, authenticate, validate))
}

// traceGRPC makes a span of each call. What is given to grpc.StatsHandler, as otelgrpc is, stands outside of all interceptors
// anyway.
func traceGRPC(spans *trace.TracerProvider) grpc.UnaryServerInterceptor {
	tracer := spans.Tracer("grpc")
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, span := tracer.Start(ctx, info.FullMethod)
		defer span.End()
		res, err := next(ctx, req)
		if c := status.Code(err); c != codes.OK {
			span.SetAttributes(attribute.String(errorTypeKey, code.Code(c).String()))
		}
		return res, err
	}
}

func authenticateGRPC(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := login(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return next(ctx, req)
}

func validateGRPC(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if m, ok := req.(proto.Message); ok {
		if err := (positive{}).Validate(m); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return next(ctx, req)
}

func startGRPC(t *testing.T, o order, guard *idempotency.Guard, spans *trace.TracerProvider) charge {
	t.Helper()
	inOrder := grpcInOrder
	if o == guardFirst {
		inOrder = grpcGuardFirst
	}
	server := inOrder(traceGRPC(spans), authenticateGRPC, validateGRPC, grpcgo.UnaryServerInterceptor(guard))
	server.RegisterService(chargeService(), struct{}{})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(ctx context.Context, key, tenant string, amount int64) codes.Code {
		ctx = metadata.AppendToOutgoingContext(ctx, idempotency.DefaultHeader, key)
		if tenant != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", tenant)
		}
		req := &chargesv1.CreateChargeRequest{Amount: amount}
		return status.Code(conn.Invoke(ctx, createProcedure, req, new(chargesv1.CreateChargeResponse)))
	}
}

// chargeService is the service as generated code would describe it.
func chargeService() *grpc.ServiceDesc {
	create := func(_ any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		req := new(chargesv1.CreateChargeRequest)
		if err := decode(req); err != nil {
			return nil, err
		}
		return through(ctx, req, &grpc.UnaryServerInfo{FullMethod: createProcedure}, func(context.Context, any) (any, error) {
			return new(chargesv1.CreateChargeResponse), nil
		})
	}
	return &grpc.ServiceDesc{
		ServiceName: "charges.v1.ChargeService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "CreateCharge", Handler: create}},
	}
}

package recipes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
)

// connectV2InOrder is the recipe.
func connectV2InOrder(tracing, authenticate, validation, guard connect.ServerInterceptor) *connect.Server {
	return connect.NewServer(tracing, authenticate, validation, guard)
}

func connectV2GuardFirst(tracing, authenticate, validation, guard connect.ServerInterceptor) *connect.Server {
	return connect.NewServer(guard, tracing, authenticate, validation)
}

func authenticateV2(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		info, _ := connect.CallInfoForServerContext(ctx)
		ctx, err := login(ctx, info.RequestHeader().Values("Authorization"))
		if err != nil {
			return connect.NewError(connect.CodeUnauthenticated, err.Error())
		}
		return next(ctx, spec, stream)
	}
}

func startConnectV2(t *testing.T, o order, guard *idempotency.Guard, spans *trace.TracerProvider) charge {
	t.Helper()
	tracing, err := otelconnect.NewServerInterceptor(otelconnect.WithTracerProvider(spans), otelconnect.WithoutMetrics())
	if err != nil {
		t.Fatal(err)
	}
	inOrder := connectV2InOrder
	if o == guardFirst {
		inOrder = connectV2GuardFirst
	}
	validation := validate.NewServerInterceptor(validate.WithValidator(positive{}))
	server := inOrder(tracing, authenticateV2, validation, connectv2.NewServerInterceptor(guard))
	server.Register(connect.Method{Spec: createSpec(), Handler: createV2})
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	client := connect.NewClient(connecthttp.NewTransport(web.Client(), web.URL))
	return func(ctx context.Context, key, tenant string, amount int64) codes.Code {
		ctx, info := connect.NewClientContext(ctx)
		info.RequestHeader().Set(idempotency.DefaultHeader, key)
		if tenant != "" {
			info.RequestHeader().Set("Authorization", tenant)
		}
		req := &chargesv1.CreateChargeRequest{Amount: amount}
		if err := client.CallUnary(ctx, createSpec(), req, new(chargesv1.CreateChargeResponse)); err != nil {
			return codes.Code(connect.CodeOf(err))
		}
		return codes.OK
	}
}

// createSpec describes the procedure as generated code would.
func createSpec() connect.Spec {
	service := chargesv1.File_charges_v1_charges_proto.Services().ByName("ChargeService")
	return connect.Spec{
		StreamType: connect.StreamTypeUnary, Schema: service.Methods().ByName("CreateCharge"), Procedure: createProcedure,
	}
}

const createProcedure = "/charges.v1.ChargeService/CreateCharge"

func createV2(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
	if err := stream.Receive(new(chargesv1.CreateChargeRequest)); err != nil {
		return err
	}
	return stream.Send(new(chargesv1.CreateChargeResponse))
}

package recipes_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// connectInOrder is the recipe.
func connectInOrder(tracing, validation, guard connect.Interceptor) connect.HandlerOption {
	return connect.WithInterceptors(tracing, connect.UnaryInterceptorFunc(authenticate), validation, guard)
}

func connectGuardFirst(tracing, validation, guard connect.Interceptor) connect.HandlerOption {
	return connect.WithInterceptors(guard, tracing, connect.UnaryInterceptorFunc(authenticate), validation)
}

func authenticate(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := login(ctx, req.Header().Values("Authorization"))
		if err != nil {
			return nil, connect.NewError(connect.CodeUnauthenticated, err)
		}
		return next(ctx, req)
	}
}

func startConnect(t *testing.T, o order, guard *idempotency.Guard, spans *trace.TracerProvider) charge {
	t.Helper()
	tracing, err := otelconnect.NewInterceptor(otelconnect.WithTracerProvider(spans), otelconnect.WithoutMetrics())
	if err != nil {
		t.Fatal(err)
	}
	inOrder := connectInOrder
	if o == guardFirst {
		inOrder = connectGuardFirst
	}
	validation := validate.NewInterceptor(validate.WithValidator(positive{}))
	_, handler := chargesv1connect.NewChargeServiceHandler(connectService{}, inOrder(tracing, validation, interceptor.New(guard)))
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	client := chargesv1connect.NewChargeServiceClient(web.Client(), web.URL)
	return func(ctx context.Context, key, tenant string, amount int64) codes.Code {
		req := connect.NewRequest(&chargesv1.CreateChargeRequest{Amount: amount})
		req.Header().Set(idempotency.DefaultHeader, key)
		if tenant != "" {
			req.Header().Set("Authorization", tenant)
		}
		if _, err := client.CreateCharge(ctx, req); err != nil {
			return codes.Code(connect.CodeOf(err))
		}
		return codes.OK
	}
}

type connectService struct {
	chargesv1connect.UnimplementedChargeServiceHandler
}

func (connectService) CreateCharge(
	context.Context, *connect.Request[chargesv1.CreateChargeRequest],
) (*connect.Response[chargesv1.CreateChargeResponse], error) {
	return connect.NewResponse(new(chargesv1.CreateChargeResponse)), nil
}

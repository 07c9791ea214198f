// Package recipes_test shows how the guard stands beside other interceptors.
package recipes_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// inOrder is the recipe: tracing sees every call, replays and refusals too; who calls is settled before whose key it is; what
// is not valid never claims a key; and the guard is next to the handler.
func inOrder(tracing, validation, guard connect.Interceptor) connect.HandlerOption {
	return connect.WithInterceptors(tracing, connect.UnaryInterceptorFunc(authenticate), validation, guard)
}

// guardFirst is what the recipe is for: the guard stands outside of the others.
func guardFirst(tracing, validation, guard connect.Interceptor) connect.HandlerOption {
	return connect.WithInterceptors(guard, tracing, connect.UnaryInterceptorFunc(authenticate), validation)
}

type tenantKey struct{}

// authenticate takes the tenant's name for a proof of who calls.
func authenticate(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		tenant := req.Header().Get("Authorization")
		if tenant == "" {
			return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("log in first"))
		}
		return next(context.WithValue(ctx, tenantKey{}, tenant), req)
	}
}

// positive is a validator that knows one rule, as if the schema had it.
type positive struct{}

func (positive) Validate(m proto.Message, _ ...protovalidate.ValidationOption) error {
	if req, ok := m.(*chargesv1.CreateChargeRequest); ok && req.Amount <= 0 {
		return &protovalidate.ValidationError{Violations: []*protovalidate.Violation{}}
	}
	return nil
}

// server is a charges service whose interceptors stand in some order, and its keys.
type server struct {
	client chargesv1connect.ChargeServiceClient
	pool   *pgxpool.Pool
	spans  *tracetest.SpanRecorder
}

func newServer(t *testing.T, order func(tracing, validation, guard connect.Interceptor) connect.HandlerOption) *server {
	t.Helper()
	s := &server{pool: pgtest.Pool(t, pgtest.Database(t)), spans: tracetest.NewSpanRecorder()}
	keys, err := postgres.New(s.pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	guard, err := idempotency.New(keys, idempotency.WithScope(func(ctx context.Context, _ idempotency.Call) (string, error) {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		return tenant, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	tracing, err := otelconnect.NewInterceptor(
		otelconnect.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(s.spans))), otelconnect.WithoutMetrics())
	if err != nil {
		t.Fatal(err)
	}
	validation := validate.NewInterceptor(validate.WithValidator(positive{}))
	_, handler := chargesv1connect.NewChargeServiceHandler(service{}, order(tracing, validation, interceptor.New(guard)))
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	s.client = chargesv1connect.NewChargeServiceClient(web.Client(), web.URL)
	return s
}

type service struct {
	chargesv1connect.UnimplementedChargeServiceHandler
}

func (service) CreateCharge(
	context.Context, *connect.Request[chargesv1.CreateChargeRequest],
) (*connect.Response[chargesv1.CreateChargeResponse], error) {
	return connect.NewResponse(new(chargesv1.CreateChargeResponse)), nil
}

// charge makes a call with the key k, and returns the code of its answer, 0 for success.
func (s *server) charge(t *testing.T, tenant string, amount int64) connect.Code {
	t.Helper()
	req := connect.NewRequest(&chargesv1.CreateChargeRequest{Amount: amount})
	req.Header().Set("Idempotency-Key", "k")
	if tenant != "" {
		req.Header().Set("Authorization", tenant)
	}
	_, err := s.client.CreateCharge(t.Context(), req)
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func (s *server) rows(t *testing.T) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), "select count(*) from idempotency_keys").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRefusedLoginLeavesNoRow(t *testing.T) {
	s := newServer(t, inOrder)
	if c := s.charge(t, "", 1299); c != connect.CodeUnauthenticated || s.rows(t) != 0 {
		t.Errorf("the code is %v, with %d rows", c, s.rows(t))
	}
	if c := s.charge(t, "acme", 1299); c != 0 || s.rows(t) != 1 {
		t.Errorf("once logged in the code is %v, with %d rows", c, s.rows(t))
	}
}

// An invalid request that was mended is a request of its own, and its key is free.
func TestInvalidRequestLeavesNoRow(t *testing.T) {
	s := newServer(t, inOrder)
	if c := s.charge(t, "acme", 0); c != connect.CodeInvalidArgument || s.rows(t) != 0 {
		t.Errorf("the code is %v, with %d rows", c, s.rows(t))
	}
	if c := s.charge(t, "acme", 1299); c != 0 {
		t.Errorf("once mended the code is %v", c)
	}
}

// With the guard outside, a key is spent on what validation refuses, and belongs to nobody: what one tenant was told, all are.
func TestGuardOutsideOfTheOthers(t *testing.T) {
	s := newServer(t, guardFirst)
	if c := s.charge(t, "acme", 0); c != connect.CodeInvalidArgument || s.rows(t) != 1 {
		t.Errorf("the code is %v, with %d rows", c, s.rows(t))
	}
	if c := s.charge(t, "acme", 1299); c != connect.CodeFailedPrecondition {
		t.Errorf("once mended the code is %v, want the key to be spent", c)
	}
	s = newServer(t, guardFirst)
	for _, tenant := range []string{"acme", "another", ""} { // the last has not even logged in
		if c := s.charge(t, tenant, 1299); c != 0 || s.rows(t) != 1 {
			t.Errorf("%q got %v, with %d rows", tenant, c, s.rows(t))
		}
	}
}

func TestTracingSeesReplaysAndRefusals(t *testing.T) {
	s := newServer(t, inOrder)
	s.charge(t, "acme", 1299)
	s.charge(t, "acme", 1299) // a replay
	s.charge(t, "acme", 1300) // refused
	ended := s.spans.Ended()
	if len(ended) != 3 {
		t.Fatalf("%d spans ended, want 3", len(ended))
	}
	for i, want := range []string{"", "", "failed_precondition"} {
		if got := errorCode(ended[i]); got != want {
			t.Errorf("span %d has the error code %q, want %q", i, got, want)
		}
	}
}

func errorCode(span trace.ReadOnlySpan) string {
	for _, a := range span.Attributes() {
		if a.Key == "rpc.connect_rpc.error_code" {
			return a.Value.AsString()
		}
	}
	return ""
}

// Package recipes_test shows how the guard stands beside other interceptors.
//
// The order that loses nothing, the outermost first: tracing sees every call, replays and refusals too; who calls is settled
// before whose key it is; what is not valid never claims a key; and the guard is next to the handler. Each adapter has it in
// a file of its own, and beside it an order that shows what it is for.
package recipes_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"buf.build/go/protovalidate"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// order is how a server's interceptors stand.
type order int

const (
	inOrder    order = iota // the recipe
	guardFirst              // the guard stands outside of the others, which is what the recipe is for
)

// charge makes a call, and returns the code of its answer. A key or a tenant that is "" is not sent.
type charge func(ctx context.Context, key, tenant string, amount int64) codes.Code

// start starts a charges service. It ends with the test.
type start func(t *testing.T, o order, guard *idempotency.Guard, tracing *trace.TracerProvider) charge

// servers are all that have a recipe.
func servers() map[string]start {
	return map[string]start{"connect": startConnect, "connect v2": startConnectV2, "grpc-go": startGRPC}
}

type tenantKey struct{}

// login takes the tenant's name for a proof of who calls.
func login(ctx context.Context, authorization []string) (context.Context, error) {
	if len(authorization) != 1 {
		return nil, errors.New("log in first")
	}
	return context.WithValue(ctx, tenantKey{}, authorization[0]), nil
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
	call  charge
	pool  *pgxpool.Pool
	spans *tracetest.SpanRecorder
}

func newServer(t *testing.T, start start, o order) *server {
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
	s.call = start(t, o, guard, trace.NewTracerProvider(trace.WithSpanProcessor(s.spans)))
	return s
}

// charge makes a call with the key k, which must be answered with a code and leave a number of rows.
func (s *server) charge(t *testing.T, tenant string, amount int64, want codes.Code, wantRows int) {
	t.Helper()
	if got := s.call(t.Context(), "k", tenant, amount); got != want {
		t.Errorf("%q is answered %v, want %v", tenant, got, want)
	}
	var rows int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from idempotency_keys").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows != wantRows {
		t.Errorf("there are %d rows, want %d", rows, wantRows)
	}
}

func TestRefusedLoginLeavesNoRow(t *testing.T) {
	for name, start := range servers() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, start, inOrder)
			s.charge(t, "", 1299, codes.Unauthenticated, 0)
			s.charge(t, "acme", 1299, codes.OK, 1)
		})
	}
}

// An invalid request that was mended is a request of its own, and its key is free.
func TestInvalidRequestLeavesNoRow(t *testing.T) {
	for name, start := range servers() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, start, inOrder)
			s.charge(t, "acme", 0, codes.InvalidArgument, 0)
			s.charge(t, "acme", 1299, codes.OK, 1)
		})
	}
}

// With the guard outside, a key is spent on what validation refuses.
func TestGuardOutsideOfValidation(t *testing.T) {
	for name, start := range servers() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, start, guardFirst)
			s.charge(t, "acme", 0, codes.InvalidArgument, 1)
			s.charge(t, "acme", 1299, codes.FailedPrecondition, 1)
		})
	}
}

// With the guard outside, a key belongs to nobody: what one tenant was told, all are.
func TestGuardOutsideOfAuthentication(t *testing.T) {
	for name, start := range servers() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, start, guardFirst)
			for _, tenant := range []string{"acme", "another", ""} { // the last has not even logged in
				s.charge(t, tenant, 1299, codes.OK, 1)
			}
		})
	}
}

func TestTracingSeesReplaysAndRefusals(t *testing.T) {
	for name, start := range servers() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, start, inOrder)
			s.charge(t, "acme", 1299, codes.OK, 1)
			s.charge(t, "acme", 1299, codes.OK, 1) // a replay
			s.charge(t, "acme", 1300, codes.FailedPrecondition, 1)
			var got []string
			for _, span := range s.spans.Ended() {
				got = append(got, errorType(span))
			}
			if want := []string{"", "", "FAILED_PRECONDITION"}; !slices.Equal(got, want) {
				t.Errorf("the spans have the errors %q, want %q", got, want)
			}
		})
	}
}

// errorType returns what a span says of its call's error, "" where it had none.
func errorType(span trace.ReadOnlySpan) string {
	for _, a := range span.Attributes() {
		if a.Key == errorTypeKey {
			return a.Value.AsString()
		}
	}
	return ""
}

// errorTypeKey is the attribute that OpenTelemetry's conventions have for it.
const errorTypeKey = "error.type"

// Package foreign_test puts a service of someone else's schema, google.longrunning.Operations, behind each adapter, and calls
// it with the gRPC client that comes with the schema.
package foreign_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// operations is the service.
type operations struct {
	longrunningpb.UnimplementedOperationsServer
	pool *pgxpool.Pool
}

// WaitOperation does something each time that it runs, and says how many times that makes.
func (o operations) WaitOperation(ctx context.Context, req *longrunningpb.WaitOperationRequest) (*longrunningpb.Operation, error) {
	var run int
	if err := postgres.Querier(ctx, o.pool).QueryRow(ctx, "insert into runs default values returning run").Scan(&run); err != nil {
		return nil, err
	}
	return operationOf(run, req)
}

func operationOf(run int, req *longrunningpb.WaitOperationRequest) (*longrunningpb.Operation, error) {
	asked, err := anypb.New(req)
	return &longrunningpb.Operation{Name: strconv.Itoa(run), Done: true, Result: &longrunningpb.Operation_Response{Response: asked}}, err
}

// table is a store's, and beside it the one of what the service did.
type table struct {
	pool *pgxpool.Pool
	keys *postgres.Store
}

// inEach runs a test for each adapter in each of the store's modes, on tables of its own.
func inEach(t *testing.T, test func(t *testing.T, adapter string, on table)) {
	t.Helper()
	modes := map[string]func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error){
		"leased": postgres.New, "transactional": postgres.NewTransactional,
	}
	for adapter := range adapters() {
		for mode, newStore := range modes {
			t.Run(adapter+"/"+mode, func(t *testing.T) {
				pool := pgtest.Pool(t, pgtest.Database(t))
				keys, err := newStore(pool)
				if err != nil {
					t.Fatal(err)
				}
				if err := keys.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := pool.Exec(t.Context(), "create table runs (run int generated always as identity)"); err != nil {
					t.Fatal(err)
				}
				test(t, adapter, table{pool, keys})
			})
		}
	}
}

// serve starts a server on the table, with a guard of its own.
func (on table) serve(t *testing.T, adapter string) longrunningpb.OperationsClient {
	t.Helper()
	guard, err := idempotency.New(on.keys, idempotency.WithSingleScope())
	if err != nil {
		t.Fatal(err)
	}
	address := adapters()[adapter](t, guard, operations{pool: on.pool})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return longrunningpb.NewOperationsClient(conn)
}

// ranOnce fails the test unless the service has run once, for good.
func (on table) ranOnce(t *testing.T) {
	t.Helper()
	var runs int
	if err := on.pool.QueryRow(t.Context(), "select count(*) from runs").Scan(&runs); err != nil {
		t.Fatal(err)
	}
	if runs != 1 {
		t.Errorf("the service ran %d times, want once", runs)
	}
}

// wait makes a call with the key k, which must be answered with a code, with the first run's operation where that is OK, and
// say whether it is a replay.
func wait(t *testing.T, c longrunningpb.OperationsClient, timeout time.Duration, want codes.Code, wantReplayed bool) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), idempotency.DefaultHeader, "k")
	req := &longrunningpb.WaitOperationRequest{Name: "operations/import", Timeout: durationpb.New(timeout)}
	first, err := operationOf(1, req)
	if err != nil {
		t.Fatal(err)
	}
	var header, trailer metadata.MD
	got, err := c.WaitOperation(ctx, req, grpc.Header(&header), grpc.Trailer(&trailer))
	if replayed := grpcgo.Replayed(header, trailer); status.Code(err) != want || replayed != wantReplayed {
		t.Errorf("%v is answered %v, replayed: %v; want %v, replayed: %v", timeout, err, replayed, want, wantReplayed)
	}
	if want == codes.OK && !proto.Equal(got, first) {
		t.Errorf("%v is answered %v, want %v", timeout, got, first)
	}
}

func TestRetryIsReplayed(t *testing.T) {
	inEach(t, func(t *testing.T, adapter string, on table) {
		c := on.serve(t, adapter)
		wait(t, c, time.Minute, codes.OK, false)
		wait(t, c, time.Minute, codes.OK, true)
		on.ranOnce(t)
	})
}

func TestAnotherRequestIsRefused(t *testing.T) {
	inEach(t, func(t *testing.T, adapter string, on table) {
		c := on.serve(t, adapter)
		wait(t, c, time.Minute, codes.OK, false)
		wait(t, c, time.Hour, codes.FailedPrecondition, false)
		on.ranOnce(t)
	})
}

func TestKeyOfOneAdapterIsReplayedByTheOthers(t *testing.T) {
	inEach(t, func(t *testing.T, first string, on table) {
		wait(t, on.serve(t, first), time.Minute, codes.OK, false)
		for other := range adapters() {
			if other != first {
				wait(t, on.serve(t, other), time.Minute, codes.OK, true)
			}
		}
		on.ranOnce(t)
	})
}

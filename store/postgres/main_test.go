package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// execModes are all that pgx has.
var execModes = map[string]pgx.QueryExecMode{
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

// modes are the two ways to hold a claim.
var modes = map[string]func(*pgxpool.Pool, ...postgres.Option) (*postgres.Store, error){
	"leased":        postgres.New,
	"transactional": postgres.NewTransactional,
}

func inExecMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
}

func maxConns(n int32) func(*pgxpool.Config) { return func(c *pgxpool.Config) { c.MaxConns = n } }

func newPool(t testing.TB, opts ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, pgtest.Database(t), opts...)
}

// newStore makes a store of a mode with its table.
func newStore(t testing.TB, mode string, pool *pgxpool.Pool, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := modes[mode](pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drain(t, s) })
	return s
}

func drain(t testing.TB, s *postgres.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Drain(ctx); err != nil {
		t.Fatalf("drain: %v", err)
	}
}

var lastKey atomic.Int64

// newClaim makes a claim on a key that no other test has.
func newClaim() store.Claim {
	return store.Claim{
		ID:          store.ID{Scope: "tenant", Key: fmt.Sprintf("key-%d", lastKey.Add(1))},
		Token:       store.NewToken(),
		RequestHash: "v1:sha256:00",
		Procedure:   "/charges.v1.ChargeService/CreateCharge",
		TTL:         time.Hour,
		Lease:       time.Minute,
	}
}

// again is a claim on the same key by another attempt.
func again(c store.Claim) store.Claim {
	c.Token = store.NewToken()
	return c
}

func win(t testing.TB, s store.Store, c store.Claim) store.Attempt {
	t.Helper()
	found, attempt, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if attempt == nil {
		t.Fatalf("the claim did not win; found %+v", found)
	}
	return attempt
}

// lose claims a key that is not free, and returns what stands in the way.
func lose(t testing.TB, s store.Store, c store.Claim) store.Found {
	t.Helper()
	found, attempt, err := s.Claim(t.Context(), again(c))
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if attempt != nil {
		t.Fatal("a claim on a key that is not free has won")
	}
	return found
}

func done(reply string) store.Record {
	return store.Record{State: store.Completed, Code: code.Code_OK, Reply: []byte(reply)}
}

func declined(reply string) store.Record {
	return store.Record{State: store.Completed, Code: code.Code_FAILED_PRECONDITION, Reply: []byte(reply)}
}

func complete(t testing.TB, a store.Attempt, r store.Record) {
	t.Helper()
	if err := a.Complete(t.Context(), r, false); err != nil {
		t.Fatalf("complete: %v", err)
	}
}

// exec runs SQL in the pool.
func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// queryOne reads one value.
func queryOne[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

func newDatabase(t testing.TB) string {
	t.Helper()
	return pgtest.Database(t)
}

func poolOn(t testing.TB, url string, opts ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, url, opts...)
}

// setting sets one of the server's parameters on every connection.
func setting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// The wait for a connection is bounded, and so is a claim's.
func TestAcquireIsBounded(t *testing.T) {
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			pool := newPool(t, maxConns(1))
			patient := newStore(t, mode, pool)
			s, err := modes[mode](pool, postgres.WithTimeout(50*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			held, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Claim(t.Context(), newClaim()); err == nil {
				t.Error("a claim won without a connection")
			}
			held.Release()
			complete(t, win(t, patient, newClaim()), done("reply"))
		})
	}
}

// A caller that goes away while its claim waits for a connection waits no longer.
func TestAcquireEndsWithTheCaller(t *testing.T) {
	pool := newPool(t, maxConns(1))
	s := newStore(t, "leased", pool)
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Claim(ctx, newClaim()); err == nil {
		t.Error("a claim of a caller that had gone won")
	}
}

// A leased attempt holds no connection, a transactional one holds one and needs no second.
func TestConnectionsHeld(t *testing.T) {
	for mode, want := range map[string]int32{"leased": 0, "transactional": 1} {
		t.Run(mode, func(t *testing.T) {
			pool := newPool(t, maxConns(1))
			s := newStore(t, mode, pool)
			a := win(t, s, newClaim())
			if got := pool.Stat().AcquiredConns(); got != want {
				t.Errorf("%d connections are held, want %d", got, want)
			}
			if got := postgres.Querier(a.Context(t.Context()), pool); (got == postgres.DB(pool)) != (want == 0) {
				t.Errorf("Querier is a %T", got)
			}
			complete(t, a, done("reply"))
			drain(t, s)
			if got := pool.Stat().AcquiredConns(); got != 0 {
				t.Errorf("%d connections are held at the end", got)
			}
		})
	}
}

// Servers of both modes may share a table: each sees the other's claims.
func TestModesTogether(t *testing.T) {
	pool := newPool(t, maxConns(4))
	leased, transactional := newStore(t, "leased", pool), newStore(t, "transactional", pool)

	c := newClaim()
	a := win(t, leased, c)
	if found := lose(t, transactional, c); found.State != store.InProgress || found.Token != c.Token {
		t.Errorf("a transactional claim found %+v, want the leased one in progress", found)
	}
	complete(t, a, done("leased"))
	if found := lose(t, transactional, c); string(found.Record.Reply) != "leased" {
		t.Errorf("a transactional claim found %+v, want the leased reply", found)
	}

	c = newClaim()
	a = win(t, transactional, c)
	if found := lose(t, leased, c); !found.OutOfSight() {
		t.Errorf("a leased claim found %+v, want in progress, out of sight", found)
	}
	complete(t, a, done("transactional"))
	if found := lose(t, leased, c); string(found.Record.Reply) != "transactional" {
		t.Errorf("a leased claim found %+v, want the transactional reply", found)
	}
}

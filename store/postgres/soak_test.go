//go:build soak

package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

const (
	soakRows = 1000          // that the table holds
	soakTurn = soakRows / 20 // calls between two looks at autovacuum
	// mostDead is how many rows may wait for autovacuum before the load does. In production a table's rows turn over in
	// hours, and autovacuum looks every minute; here they turn over in the seconds between two of its looks.
	mostDead = soakRows * 3 / 10
)

// At a steady load, and however often its rows turn over, the table keeps its size: what is swept makes room for what
// comes, with no setting but those of the migration.
func TestSizeStaysLevel(t *testing.T) {
	server := pgtest.Server(t, map[string]string{"autovacuum_naptime": "1s", "fsync": "off"})
	// One connection, since each keeps what it has done to itself for a while, and autovacuum goes by what it has been told.
	pool := pgtest.Pool(t, server.URL("postgres"), maxConns(1))
	soak := &soak{pool: pool, rows: make(chan struct{}, soakRows+2*soakTurn)}
	for mode := range modes {
		soak.stores = append(soak.stores, newStore(t, mode, pool))
	}
	soak.sweep(t)

	for range soakRows / soakTurn {
		soak.turn(t)
	}
	first := soak.size(t)
	for range 9 * soakRows / soakTurn {
		soak.turn(t)
		soak.awaitAutovacuum(t)
	}
	last := soak.size(t)
	t.Logf("%d bytes with the first %d rows, %d after ten times as many", first, soakRows, last)
	if last > first*3/2 {
		t.Errorf("the table grew from %d to %d bytes, which is more than half as much again", first, last)
	}
}

// soak is a load that keeps the number of the table's rows.
type soak struct {
	pool   *pgxpool.Pool
	stores []*postgres.Store
	rows   chan struct{} // holds one for each row of the table
	made   int           // rows, since the beginning
}

// sweep runs a Sweeper until the test ends.
func (s *soak) sweep(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	sweeper := store.Sweeper{
		Store: newest{Store: s.stores[0], rows: s.rows},
		Every: 10 * time.Millisecond,
		Swept: func(_ int, err error) {
			if err != nil {
				t.Errorf("sweep: %v", err)
			}
		},
	}
	running.Go(func() { sweeper.Run(ctx) })
}

// newest lets a sweep delete what has expired of all but the newest rows, as if the others had not expired.
type newest struct {
	store.Store
	rows chan struct{}
}

func (n newest) Sweep(ctx context.Context, from store.Cursor, limit int) (store.Cursor, int, error) {
	limit = min(limit, len(n.rows)-soakRows)
	if limit < 1 {
		return from, 0, nil
	}
	next, deleted, err := n.Store.Sweep(ctx, from, limit)
	for range deleted {
		<-n.rows
	}
	return next, deleted, err
}

// turn makes calls in both modes, at once; it waits where the sweep is behind.
func (s *soak) turn(t *testing.T) {
	t.Helper()
	var calls sync.WaitGroup
	for _, keys := range s.stores {
		calls.Go(func() {
			for range soakTurn / len(s.stores) {
				if err := s.call(t.Context(), keys); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	calls.Wait()
	s.made += soakTurn
	if t.Failed() {
		t.FailNow()
	}
}

// call is a first call whose row expires at once.
func (s *soak) call(ctx context.Context, keys *postgres.Store) error {
	c := newClaim()
	c.TTL, c.Lease = 2*time.Millisecond, time.Millisecond
	select {
	case s.rows <- struct{}{}:
	case <-time.After(20 * time.Second):
		return fmt.Errorf("the sweep deletes nothing: %d rows are left", len(s.rows))
	}
	_, a, err := keys.Claim(ctx, c)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if a == nil {
		return fmt.Errorf("the claim of a new key did not win")
	}
	return a.Complete(ctx, store.Record{State: store.Completed, Code: code.Code_OK, Reply: make([]byte, 512),
		Readable: raw(`{"text":"` + strings.Repeat("x", 256) + `"}`)}, false)
}

// awaitAutovacuum returns once the server counts every row that was made and swept, and no more than mostDead of them wait
// for autovacuum.
func (s *soak) awaitAutovacuum(t *testing.T) {
	t.Helper()
	tell := "select"
	if queryOne[bool](t, s.pool, "select to_regproc('pg_stat_force_next_flush') is not null") {
		tell = "select pg_stat_force_next_flush()" // the server itself takes up to a second
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		exec(t, s.pool, tell)
		var made, left, dead int
		err := s.pool.QueryRow(t.Context(), `select n_tup_ins, n_tup_ins - n_tup_del, n_dead_tup
			from pg_stat_all_tables where relname = 'idempotency_keys'`).Scan(&made, &left, &dead)
		if err != nil {
			t.Fatal(err)
		}
		if made == s.made && left == soakRows && dead <= mostDead {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("autovacuum does not come: %d rows wait for it; %d were made and %d are left, of %d and %d", dead, made, left, s.made, soakRows)
		}
	}
}

func (s *soak) size(t *testing.T) int {
	t.Helper()
	return queryOne[int](t, s.pool, "select pg_total_relation_size('idempotency_keys')")
}

package postgres_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// A transactional claim limits its transaction to the lease, and only ever lowers what the caller has set.
func TestLimitsOfATransaction(t *testing.T) {
	const lease = 2 * time.Second
	for name, test := range map[string]struct{ set, want string }{
		"none set":    {"0", "2s"},
		"higher":      {"1h", "2s"},
		"lower stays": {"700ms", "700ms"},
	} {
		for execName, execMode := range execModes {
			t.Run(name+"/"+execName, func(t *testing.T) {
				pool := newPool(t, inExecMode(execMode), setting("lock_timeout", test.set), setting("idle_in_transaction_session_timeout", test.set))
				s := newStore(t, "transactional", pool)
				c := newClaim()
				c.Lease = lease
				a := win(t, s, c)
				tx, _ := postgres.TxFrom(a.Context(t.Context()))
				for _, name := range []string{"lock_timeout", "idle_in_transaction_session_timeout"} {
					var got string
					if err := tx.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&got); err != nil {
						t.Fatal(err)
					}
					if got != test.want {
						t.Errorf("%s is %s, want %s", name, got, test.want)
					}
				}
				complete(t, a, done("reply"))
				if got := queryOne[string](t, pool, "show lock_timeout"); got == "2s" && test.set != "2s" {
					t.Error("the limit outlives the transaction")
				}
			})
		}
	}
}

// untilFree claims a key until it is won.
func untilFree(t *testing.T, s store.Store, c store.Claim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, a, err := s.Claim(ctx, again(c))
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		if a != nil {
			complete(t, a, done("second"))
			return
		}
	}
}

// A server that is paused holds its key no longer than the lease: its transaction is ended, and whoever comes back to it is
// told that it is gone.
func TestAPausedTransactionFreesItsKey(t *testing.T) {
	s, _, watcher := lossy(t, "transactional")
	other := newStore(t, "transactional", watcher)
	c := newClaim()
	c.Lease = time.Second
	a := win(t, s, c)
	tx, _ := postgres.TxFrom(a.Context(t.Context()))
	if _, err := tx.Exec(t.Context(), insertEffect); err != nil {
		t.Fatal(err)
	}
	untilFree(t, other, c)
	err := a.Complete(t.Context(), done("late"), false)
	if err == nil || errors.Is(err, store.ErrRejected) || errors.Is(err, store.ErrConflict) {
		t.Errorf("Complete: %v, want a store that failed", err)
	}
	if got := effects(t, watcher); got != 0 {
		t.Errorf("%d effects, want none", got)
	}
}

// A server that vanishes while its backend waits for a lock holds its key no longer than the lease either.
func TestAVanishedServersBackendStopsWaiting(t *testing.T) {
	url := newDatabase(t)
	watcher := poolOn(t, url)
	var sockets socketList
	s, other := newStore(t, "transactional", poolOn(t, url, sockets.on, maxConns(1))), newStore(t, "transactional", watcher)
	exec(t, watcher, "create table accounts (id integer primary key)")
	exec(t, watcher, "insert into accounts values (1)")
	blocker, err := watcher.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), "select from accounts for update"); err != nil {
		t.Fatal(err)
	}
	c := newClaim()
	c.Lease = time.Second
	a := win(t, s, c)
	tx, _ := postgres.TxFrom(a.Context(t.Context()))
	pid := tx.Conn().PgConn().PID()
	waited := make(chan error, 1)
	go func() {
		_, err := tx.Exec(t.Context(), "select from accounts for update")
		waited <- err
	}()
	for waiting := false; !waiting; {
		waiting = queryOne[bool](t, watcher, "select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')", pid)
	}
	sockets.close()
	if err := <-waited; err == nil {
		t.Error("the statement ended without an error")
	}
	untilFree(t, other, c)
	if err := a.Release(t.Context()); err == nil {
		t.Error("released on a connection that is gone")
	}
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// socketList closes a pool's connections without a word to the server's backend but the end of the stream.
type socketList struct {
	mu   sync.Mutex
	open []net.Conn
}

func (l *socketList) on(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, conn)
		return conn, err
	}
}

func (l *socketList) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close()
	}
}

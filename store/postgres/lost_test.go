package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// lossy is a store on a pool of one connection, whose network a test can cut.
func lossy(t *testing.T, mode string) (*postgres.Store, *wire, *pgxpool.Pool) {
	t.Helper()
	return lossyOn(t, newDatabase(t), mode)
}

// lossyOn is lossy on a database that others may share.
func lossyOn(t *testing.T, url, mode string) (*postgres.Store, *wire, *pgxpool.Pool) {
	t.Helper()
	w := new(wire)
	pool := poolOn(t, url, w.on, maxConns(1))
	s := newStore(t, mode, pool)
	watcher := poolOn(t, url)
	exec(t, watcher, "create table if not exists effects (n integer)")
	// Warm, so that what is cut is the flight and not the preparation of its statements.
	complete(t, win(t, s, newClaim()), done("warm"))
	return s, w, watcher
}

func stateOf(t *testing.T, s store.Store, id store.ID) store.Found {
	t.Helper()
	found, err := s.Look(t.Context(), []store.ID{id})
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

// A COMMIT whose answer is lost is looked up: it is done where it committed, with MaxConns=1 too.
func TestCommitWithoutAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		cut       cut
		committed bool
	}{
		"cut after the server got it":  {cut: beforeAnswer, committed: true},
		"cut before the server got it": {cut: beforeServer},
		"cut midway":                   {cut: midway},
	} {
		t.Run(name, func(t *testing.T) {
			s, w, watcher := lossy(t, "transactional")
			c := newClaim()
			a := win(t, s, c)
			tx, _ := postgres.TxFrom(a.Context(t.Context()))
			if _, err := tx.Exec(t.Context(), insertEffect); err != nil {
				t.Fatal(err)
			}
			w.next(test.cut)
			err := a.Complete(t.Context(), done("reply"), false)
			if (err == nil) != test.committed {
				t.Errorf("Complete: %v; committed should be %v", err, test.committed)
			}
			if errors.Is(err, store.ErrRejected) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrFenced) {
				t.Errorf("Complete: %v, which blames the handler", err)
			}
			if got := effects(t, watcher) == 1; got != test.committed {
				t.Errorf("the effect is there: %v, want %v", got, test.committed)
			}
			if got := stateOf(t, s, c.ID).State == store.Completed; got != test.committed {
				t.Errorf("the reply is there: %v, want %v", got, test.committed)
			}
		})
	}
}

// A backend that is ended while the handler runs takes its writes with it, and its key is free.
func TestBackendTerminatedInTheHandler(t *testing.T) {
	for name, settle := range map[string]func(*testing.T, store.Attempt) error{
		"then success":  func(t *testing.T, a store.Attempt) error { return a.Complete(t.Context(), done("reply"), false) },
		"then an error": func(t *testing.T, a store.Attempt) error { return a.Release(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, watcher := lossy(t, "transactional")
			c := newClaim()
			a := win(t, s, c)
			tx, _ := postgres.TxFrom(a.Context(t.Context()))
			if _, err := tx.Exec(t.Context(), insertEffect); err != nil {
				t.Fatal(err)
			}
			exec(t, watcher, "select pg_terminate_backend($1)", tx.Conn().PgConn().PID())
			if err := settle(t, a); err == nil {
				t.Error("settled without an error on a connection that is gone")
			}
			if got := effects(t, watcher); got != 0 {
				t.Errorf("%d effects, want none", got)
			}
			complete(t, win(t, s, again(c)), done("second"))
		})
	}
}

// What another transaction did to the handler's is a conflict, and nothing is done.
func TestSerializationFailureAtCommit(t *testing.T) {
	pool := newPool(t, maxConns(4))
	s := newStore(t, "transactional", pool, postgres.WithIsolation(pgx.Serializable))
	exec(t, pool, "create table accounts (id integer primary key, balance integer not null)")
	exec(t, pool, "insert into accounts values (1, 50), (2, 50)")
	sumThenSpend := func(a store.Attempt, id int) error {
		tx, _ := postgres.TxFrom(a.Context(t.Context()))
		var sum int
		if err := tx.QueryRow(t.Context(), "select sum(balance) from accounts").Scan(&sum); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "update accounts set balance = balance - 80 where id = $1", id)
		return err
	}
	one, other := win(t, s, newClaim()), win(t, s, newClaim())
	if err := errors.Join(sumThenSpend(one, 1), sumThenSpend(other, 2)); err != nil {
		t.Fatal(err)
	}
	complete(t, one, done("spent"))
	if err := other.Complete(t.Context(), done("spent too"), false); !errors.Is(err, store.ErrConflict) {
		t.Errorf("Complete: %v, want ErrConflict", err)
	}
	if got := queryOne[int](t, pool, "select sum(balance) from accounts"); got != 20 {
		t.Errorf("the accounts hold %d, want 20: one was spent", got)
	}
}

// The primary key has the last word over the lock: a row that another put there fences the attempt.
func TestRowOfAnotherFencesTheTransaction(t *testing.T) {
	s, _, watcher := lossy(t, "transactional")
	c := newClaim()
	a := win(t, s, c)
	tx, _ := postgres.TxFrom(a.Context(t.Context()))
	if _, err := tx.Exec(t.Context(), insertEffect); err != nil {
		t.Fatal(err)
	}
	exec(t, watcher, `insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, code, expires_at)
		values ($1, $2, 'p', 'completed', gen_random_uuid(), 1, 'h', 'OK', now() + interval '1 hour')`, c.ID.Scope, c.ID.Key)
	if err := a.Complete(t.Context(), done("reply"), false); !errors.Is(err, store.ErrFenced) {
		t.Errorf("Complete: %v, want ErrFenced", err)
	}
	if got := effects(t, watcher); got != 0 {
		t.Errorf("%d effects, want none", got)
	}
}

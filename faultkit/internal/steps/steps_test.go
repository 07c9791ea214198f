package steps_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// lease is long enough for a retry to come within it, on a slow machine too.
const lease = 10 * time.Second

// left is what a server that was killed left of a call.
type left struct {
	state   string // of the key's row; "" where there is none
	effects int    // statements of the handler that are there to stay
}

// flights is how many a call takes, in either mode: the claim, the handler's statements, and the completion, which in
// transactional mode commits all of them.
const flights = 1 + statements + 1

// step is a point of a call's flow.
type step struct {
	name                  string
	flight                int // that is held; 0: none, but the answer to the client
	held                  held
	leased, transactional left
}

// key is that of the step's call.
func (s step) key() string { return fmt.Sprintf("flight-%d-%d", s.flight, s.held) }

// steps are all there are.
func steps() []step {
	return []step{
		{"before the claim reaches the database", 1, flightItself, left{}, left{}},
		{"after the claim, before the server hears", 1, itsAnswer, left{"in_progress", 0}, left{}},
		{"before the handler's first statement", 2, flightItself, left{"in_progress", 0}, left{}},
		{"after the handler's first statement", 2, itsAnswer, left{"in_progress", 1}, left{}},
		{"between the handler's statements", 3, flightItself, left{"in_progress", 1}, left{}},
		{"after the handler's last statement", 3, itsAnswer, left{"in_progress", 2}, left{}},
		{"before the completion reaches the database", 4, flightItself, left{"in_progress", 2}, left{}},
		{"after the completion, before the server hears", 4, itsAnswer, left{"completed", 2}, left{"completed", 2}},
		{"after the server hears, before the client does", 0, 0, left{"completed", 2}, left{"completed", 2}},
	}
}

// Whenever a server is killed, the retry finds what it left: nothing, a claim that lasts no longer than its lease, or the
// reply. In transactional mode it leaves the reply with all effects, or nothing.
func TestServerKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"leased", "transactional"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mode == "transactional")
			for _, s := range steps() {
				want := s.leased
				if w.transactional {
					want = s.transactional
				}
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					until := w.kill(t, s, want)
					w.retry(t, s, want, until)
				})
			}
		})
	}
}

// world is a database and a server on it, which takes the retries of calls whose servers were killed.
type world struct {
	transactional bool
	url           string
	pool          *pgxpool.Pool // the test's own
	other         *process
}

func newWorld(t *testing.T, transactional bool) *world {
	t.Helper()
	w := &world{transactional: transactional, url: pgtest.Database(t)}
	w.pool = pgtest.Pool(t, w.url, func(c *pgxpool.Config) { c.MaxConns = 30 }) // no step waits for another's
	st, err := postgres.New(w.pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exec(t, effectsSQL)
	w.other = startProcess(t, w.config("other", w.url))
	t.Cleanup(func() { w.other.stop(t) })
	return w
}

func (w *world) config(name, databaseURL string) config {
	return config{Name: name, DatabaseURL: databaseURL, Transactional: w.transactional, Lease: lease}
}

// kill kills a server at a step of a call, which has the step's key. It returns when the lease of what it left ends.
func (w *world) kill(t *testing.T, s step, want left) (until *time.Time) {
	t.Helper()
	gate, throughIt := newGate(t, w.url)
	server := startProcess(t, w.config(s.key(), throughIt))
	server.mustCall(t, "warm-"+s.key()) // so that what is counted is flights, and not the preparation of their statements
	reached := gate.holdNext(s.flight, s.held)
	if s.flight == 0 {
		server.deafen()
		reached = server.heard
	}
	ended := make(chan error, 1)
	go func() {
		_, err := server.call(t.Context(), s.key())
		ended <- err
	}()
	receive(t, reached, "the step")
	if n := gate.counted(); s.flight == 0 && n != flights {
		t.Errorf("a call takes %d flights, and the steps are those of %d", n, flights)
	}
	server.kill(t)
	if err := receive(t, ended, "the end of the call"); err == nil || reasonOf(err) != "" {
		t.Fatalf("the client of a killed server got %v, want a broken connection", err)
	}
	w.untilDisconnected(t, s.key())
	got, until := w.left(t, s.key())
	if got != want {
		t.Fatalf("the killed server left %+v, want %+v", got, want)
	}
	return until
}

// retry calls the other server, and checks what it makes of what the killed one left; until is when its lease ends.
func (w *world) retry(t *testing.T, s step, of left, until *time.Time) {
	t.Helper()
	attempt := int64(1)
	if of.state == "in_progress" {
		attempt = 2
		if a, err := w.other.call(t.Context(), s.key()); reasonOf(err) != idempotency.ReasonKeyInProgress {
			t.Fatalf("within the lease the retry got %+v, %v", a, err)
		}
		w.exec(t, "select pg_sleep_until($1)", until) // by the clock that leases are counted by
	}
	a := w.other.mustCall(t, s.key()) // at once: nothing is stuck
	replayed := of.state == "completed"
	if a.attempt != attempt || a.replayed != replayed {
		t.Errorf("the retry got %+v, want attempt %d and a replay: %v", a, attempt, replayed)
	}
	all := of.effects
	if !replayed {
		all += statements
	}
	if got, _ := w.left(t, s.key()); got != (left{"completed", all}) {
		t.Errorf("in the end there is %+v, want the reply and %d effects", got, all)
	}
	if n := queryOne[int](t, w, "select count(distinct charge) from effects where key = $1", s.key()); n != 1 {
		t.Errorf("another system would see %d charges, want 1", n)
	}
	if n := queryOne[int](t, w, "select count(*) from effects where charge = $1 and run = $2", a.charge, a.run); n != statements {
		t.Errorf("the run that was answered has %d effects, want %d", n, statements)
	}
	if until != nil && !queryOne[bool](t, w, "select min(at) >= $2 from effects where run = $1", a.run, until) {
		t.Error("it ran again within the first one's lease")
	}
	a.replayed = true
	if again := w.other.mustCall(t, s.key()); again != a {
		t.Errorf("one more retry got %+v, want %+v", again, a)
	}
}

// untilDisconnected waits until the database has ended a server's connections, and with them its transactions.
func (w *world) untilDisconnected(t *testing.T, server string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for n := 1; n > 0; {
		err := w.pool.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and application_name = $1",
			server).Scan(&n)
		if err != nil {
			t.Fatalf("in vain: the end of the server's connections: %v", err)
		}
	}
}

// left returns what there is of a call, and when its lease ends, where it is in progress.
func (w *world) left(t *testing.T, key string) (l left, until *time.Time) {
	t.Helper()
	l.effects = queryOne[int](t, w, "select count(*) from effects where key = $1", key)
	l.state = queryOne[string](t, w, "select coalesce((select state from idempotency_keys where key = $1), '')", key)
	return l, queryOne[*time.Time](t, w, "select (select lease_until from idempotency_keys where key = $1)", key)
}

func (w *world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// queryOne reads one value.
func queryOne[T any](t *testing.T, w *world, sql string, args ...any) (v T) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// receive takes the next element, or the end, and fails the test where neither comes.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(limit):
		t.Fatalf("in vain: %s", what)
		panic("unreachable")
	}
}

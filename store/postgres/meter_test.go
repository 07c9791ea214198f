package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// tally counts the statements that a pool sends.
type tally struct {
	statements atomic.Int64
	described  atomic.Int64 // flights with arguments, which describe_exec first asks about
}

// on is an option of newPool.
func (c *tally) on(config *pgxpool.Config) { config.ConnConfig.Tracer = c }

func (c *tally) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.statements.Add(int64(strings.Count(data.SQL, ";")) + 1) // a text without arguments may hold several
	if len(data.Args) > 0 {
		c.described.Add(1)
	}
	return ctx
}

func (*tally) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tally) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.statements.Add(int64(data.Batch.Len()))
	if slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return len(q.Arguments) > 0 }) {
		c.described.Add(1)
	}
	return ctx
}

func (*tally) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*tally) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// makeSequences makes what row versions are counted in. Sequences remember what was undone, and show what has not committed.
func makeSequences(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `
create sequence versions_insert minvalue 0;
create sequence versions_update minvalue 0;
create sequence versions_delete minvalue 0;
select nextval('versions_insert'), nextval('versions_update'), nextval('versions_delete');
create function count_version() returns trigger language plpgsql as $$
begin
  perform nextval('versions_' || lower(tg_op));
  return null;
end $$;
create table effects (n int not null)`)
}

// meter takes the steps of a store, and notes what each took.
type meter struct {
	*testing.T
	store     *postgres.Store
	elsewhere *postgres.Store // the same as another process has it
	otherMode *postgres.Store
	leased    *postgres.Store
	pool      *pgxpool.Pool

	execMode pgx.QueryExecMode
	wire     wire
	tally    tally
	watcher  *pgxpool.Pool
	took     map[string]cost
}

func newMeter(t *testing.T, mode, url string, watcher *pgxpool.Pool, execMode pgx.QueryExecMode) *meter {
	t.Helper()
	m := &meter{T: t, execMode: execMode, watcher: watcher, took: make(map[string]cost)}
	m.pool = poolOn(t, url, m.wire.on, m.tally.on, inExecMode(execMode), maxConns(2), func(c *pgxpool.Config) {
		// A connection that has idled for long is pinged, which would be a flight.
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	table := strings.ReplaceAll(fmt.Sprintf("keys %s %s", mode, execMode), " ", "_")
	m.store, m.elsewhere = newStore(t, mode, m.pool, postgres.WithTable(table)), newStore(t, mode, m.pool, postgres.WithTable(table))
	if mode == "leased" {
		m.leased, m.otherMode = m.store, newStore(t, "transactional", m.pool, postgres.WithTable(table))
	} else {
		m.leased = newStore(t, "leased", m.pool, postgres.WithTable(table))
		m.otherMode = m.leased
	}
	exec(t, watcher, "create trigger versions after insert or update or delete on "+table+" for each row execute procedure count_version()")
	return m
}

// step does one thing and notes what it took, with what follows behind the answer.
func (m *meter) step(name string, do func()) {
	m.Helper()
	before, statements, described := m.written(), m.tally.statements.Load(), m.tally.described.Load()
	flights := m.wire.counted(func() {
		do()
		drain(m, m.store)
	})
	if m.execMode == pgx.QueryExecModeDescribeExec {
		flights -= int(m.tally.described.Load() - described)
	}
	statements = m.tally.statements.Load() - statements
	took := m.written()
	took.flights, took.statements = flights, int(statements)
	took.inserted -= before.inserted
	took.updated -= before.updated
	took.deleted -= before.deleted
	took.xids -= before.xids
	m.took[name] = took
}

// written reads what was written up to now. It takes no transaction id itself.
func (m *meter) written() (c cost) {
	m.Helper()
	err := m.watcher.QueryRow(m.Context(), `select (select last_value from versions_insert), (select last_value from versions_update),
		(select last_value from versions_delete), txid_snapshot_xmax(txid_current_snapshot())`).Scan(&c.inserted, &c.updated, &c.deleted, &c.xids)
	if err != nil {
		m.Fatal(err)
	}
	return c
}

// takeSteps takes every step once, each as a part of the whole call that it belongs to.
func (m *meter) takeSteps() {
	m.Helper()
	m.firstCalls()
	m.lostClaims()
	m.takeOver()
	m.others()
}

// claim is the step of that name.
func (m *meter) claim() (c store.Claim, a store.Attempt) {
	m.Helper()
	c = newClaim()
	m.step("claim", func() { a = win(m, m.store, c) })
	return c, a
}

func (m *meter) firstCalls() {
	m.Helper()
	completes := func(step string, a store.Attempt, r store.Record) {
		m.Helper()
		m.step(step, func() { complete(m, a, r) })
	}
	c, a := m.claim()
	completes("complete", a, done("reply"))
	if m.store.Transactional() {
		_, a = m.claim()
		if _, err := postgres.Querier(a.Context(m.Context()), m.pool).Exec(m.Context(), insertEffect); err != nil {
			m.Fatal(err)
		}
		completes("complete with writes", a, done("reply"))
	}
	_, a = m.claim()
	completes("complete with an error", a, declined("reply"))
	_, a = m.claim()
	m.step("release", func() { release(m, a) })

	if _, err := m.store.Forget(m.Context(), c.ID); err != nil {
		m.Fatal(err)
	}
	m.step("claim what was forgotten", func() { a = win(m, m.store, again(c)) })
	release(m, a)
}

func release(t testing.TB, a store.Attempt) {
	t.Helper()
	if err := a.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// lostClaims meet a key that is not free, which this process or another holds or has settled.
func (m *meter) lostClaims() {
	m.Helper()
	for where, s := range map[string]*postgres.Store{"": m.store, " elsewhere": m.elsewhere, " in the other mode": m.otherMode} {
		c := newClaim()
		a := win(m, s, c)
		m.step("in progress"+where, func() { lose(m, m.store, c) })
		complete(m, a, done("reply"))
		m.step("replay"+where, func() { lose(m, m.store, c) })
		m.step("replay again", func() { lose(m, m.store, c) })

		c = newClaim()
		complete(m, win(m, s, c), done("reply"))
		c.RequestHash = "v1:sha256:01"
		m.step("refusal"+where, func() { lose(m, m.store, c) })
	}
}

func (m *meter) takeOver() {
	m.Helper()
	c := newClaim()
	found := overdue(m.T, m.leased, c)
	m.step("lease over", func() { lose(m, m.store, c) })
	var a store.Attempt
	m.step("take over", func() {
		var err error
		if _, a, err = m.store.TakeOver(m.Context(), again(c), found.Token); err != nil || a == nil {
			m.Fatalf("it did not win: %v", err)
		}
	})
	m.step("complete after take-over", func() { complete(m, a, done("reply")) })
}

// others are steps beside the claim of a call.
func (m *meter) others() {
	m.Helper()
	ids, held := make([]store.ID, many+1), make([]store.Held, many+1)
	for i := range ids {
		c := newClaim()
		win(m, m.leased, c)
		ids[i], held[i] = c.ID, store.Held{ID: c.ID, Token: c.Token}
	}
	look := func(step string, ids []store.ID) {
		m.step(step, func() {
			if _, err := m.store.Look(m.Context(), ids); err != nil {
				m.Fatal(err)
			}
		})
	}
	look("look", ids[:1])
	look("look at many", ids[1:])
	m.step("forget", func() {
		if was, err := m.store.Forget(m.Context(), ids[0]); err != nil || !was {
			m.Fatal(was, err)
		}
	})
	if m.store.Transactional() {
		return
	}
	m.step("renew many", func() {
		if lost, err := m.store.Renew(m.Context(), held[1:], time.Minute); err != nil || len(lost) > 0 {
			m.Fatal(lost, err)
		}
	})
	c := newClaim()
	late := win(m, m.store, c)
	if _, err := m.store.Forget(m.Context(), c.ID); err != nil {
		m.Fatal(err)
	}
	m.step("fenced", func() {
		if err := late.Complete(m.Context(), done("late"), false); !errors.Is(err, store.ErrFenced) {
			m.Fatalf("complete: %v, want ErrFenced", err)
		}
	})
}

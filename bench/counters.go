package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// traffic counts what a pool sends: statements, and the flights that carry them. It is safe for concurrent use.
type traffic struct{ statements, flights atomic.Int64 }

var (
	_ pgx.QueryTracer = (*traffic)(nil)
	_ pgx.BatchTracer = (*traffic)(nil)
)

// watch has t count what connections made with c send.
func (t *traffic) watch(c *pgx.ConnConfig) {
	c.Tracer = t
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w := &watchedConn{Conn: conn, flights: &t.flights}
		w.read.Store(true)
		return w, nil
	}
}

// TraceQueryStart counts a statement.
func (t *traffic) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.statements.Add(1)
	return ctx
}

// TraceBatchStart counts a batch's statements.
func (t *traffic) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	t.statements.Add(int64(data.Batch.Len()))
	return ctx
}

// TraceQueryEnd does nothing.
func (*traffic) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchQuery does nothing.
func (*traffic) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (*traffic) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// watchedConn counts a flight whenever something is sent after something was read.
type watchedConn struct {
	net.Conn
	flights *atomic.Int64
	read    atomic.Bool
}

// Write counts.
func (c *watchedConn) Write(b []byte) (int, error) {
	if c.read.Swap(false) {
		c.flights.Add(1)
	}
	return c.Conn.Write(b)
}

// Read notes that an answer is read.
func (c *watchedConn) Read(b []byte) (int, error) {
	c.read.Store(true)
	return c.Conn.Read(b)
}

// counts are the work of a call. Versions are row versions, which are inserts and updates; they are NaN where the server
// cannot be asked for them in time (before PostgreSQL 15).
type counts struct {
	Statements, Flights              float64
	KeyVersions, Hot, ChargeVersions float64
}

// counts has do make n calls and returns what each sent and wrote, with what follows behind its answer. No other call may
// run meanwhile.
func (s *stage) counts(ctx context.Context, n int, do func() error) (counts, error) {
	before, err := s.written(ctx)
	if err != nil {
		return counts{}, err
	}
	statements, flights := s.traffic.statements.Load(), s.traffic.flights.Load()
	if err := do(); err != nil {
		return counts{}, err
	}
	if err := s.drain(ctx); err != nil {
		return counts{}, err
	}
	statements, flights = s.traffic.statements.Load()-statements, s.traffic.flights.Load()-flights
	after, err := s.written(ctx)
	if err != nil {
		return counts{}, err
	}
	each := func(all float64) float64 { return all / float64(n) }
	return counts{
		Statements: each(float64(statements)), Flights: each(float64(flights)), KeyVersions: each(after.keys - before.keys),
		Hot: each(after.hot - before.hot), ChargeVersions: each(after.charges - before.charges),
	}, nil
}

// versions are row versions, of a database from its beginning on.
type versions struct{ keys, hot, charges float64 }

func (s *stage) written(ctx context.Context) (v versions, err error) {
	if err := s.drain(ctx); err != nil {
		return v, err
	}
	if told, err := s.tellStatistics(ctx); err != nil || !told {
		return versions{math.NaN(), math.NaN(), math.NaN()}, err
	}
	const sql = `select
		coalesce(sum(n_tup_ins + n_tup_upd) filter (where relname in ('idempotency_keys', 'fiber_storage')), 0)::float8,
		coalesce(sum(n_tup_hot_upd) filter (where relname in ('idempotency_keys', 'fiber_storage')), 0)::float8,
		coalesce(sum(n_tup_ins + n_tup_upd) filter (where relname = 'charges'), 0)::float8
		from pg_stat_user_tables`
	if err := s.admin.QueryRow(ctx, sql).Scan(&v.keys, &v.hot, &v.charges); err != nil {
		return v, fmt.Errorf("count row versions: %w", err)
	}
	return v, nil
}

// wal is how many bytes of WAL the server has written.
func (s *stage) wal(ctx context.Context) (float64, error) {
	var bytes float64
	if err := s.admin.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").Scan(&bytes); err != nil {
		return 0, fmt.Errorf("read the end of the WAL: %w", err)
	}
	return bytes, nil
}

// tellStatistics has every connection tell the server what it did, which by itself it does up to a second later. It
// returns false where the server has no way to ask for that.
func (s *stage) tellStatistics(ctx context.Context) (bool, error) {
	var can bool
	if err := s.admin.QueryRow(ctx, "select to_regproc('pg_stat_force_next_flush') is not null").Scan(&can); err != nil || !can {
		return false, err
	}
	for _, conn := range slices.Concat(s.pool.AcquireAllIdle(ctx), s.other.AcquireAllIdle(ctx)) {
		_, err := conn.Exec(ctx, "select pg_stat_force_next_flush()")
		conn.Release()
		if err != nil {
			return false, fmt.Errorf("flush statistics: %w", err)
		}
	}
	return true, nil
}

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// acquire takes a connection, and waits for one no longer than ctx and the store's timeout allow.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errNoConnection)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errNoConnection) {
			err = errors.Join(cause, err)
		}
		return nil, fmt.Errorf("postgres: acquire a connection: %w", err)
	}
	return conn, nil
}

var errNoConnection = errors.New("the pool had no connection to give in time")

// flightContext bounds a flight by the store's timeout alone. A caller that goes away does not end it: pgx would close the
// connection, and what became of the statement would not be known.
func (s *Store) flightContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
}

// flight has send make one round trip on a connection of its own, once more on another connection where the first try
// failed by what may pass: the connection, or a serialization failure.
func (s *Store) flight(ctx context.Context, send func(context.Context, *pgxpool.Conn) error) error {
	err := s.flightOnce(ctx, send)
	if err == nil || !mayPass(err) || ctx.Err() != nil {
		return err
	}
	return s.flightOnce(ctx, send)
}

func (s *Store) flightOnce(ctx context.Context, send func(context.Context, *pgxpool.Conn) error) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := s.flightContext(ctx)
	defer cancel()
	return send(ctx, conn)
}

// query sends the statements that queue puts into a batch, in one flight, and has read take their results.
func (s *Store) query(ctx context.Context, queue func(*pgx.Batch), read func(pgx.BatchResults) error) error {
	return s.flight(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		b := new(pgx.Batch)
		queue(b)
		return readBatch(conn.SendBatch(ctx, b), read)
	})
}

// exec sends one statement, in one flight, and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = s.flight(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return explain(err)
	})
	return n, err
}

// readBatch reads results to their end.
func readBatch(results pgx.BatchResults, read func(pgx.BatchResults) error) error {
	err := read(results)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return explain(err)
}

// explain adds what to do to the error that a new user meets first.
func explain(err error) error {
	if sqlState(err) == "42P01" {
		return fmt.Errorf("%w (has the store's Migrate been called, or its migrations been applied?)", err)
	}
	return err
}

// sqlState returns the SQLSTATE that the server answered with, and "" where err is not a server's answer.
func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// definite reports whether err is a server's plain ERROR, after which the connection is in order and the statement
// certainly had no effect. A FATAL or PANIC, or no answer, is not: what came of a COMMIT is unknown then.
func definite(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.SeverityUnlocalized != "FATAL" && pgErr.SeverityUnlocalized != "PANIC"
}

// mayPass reports whether a flight that failed with err is worth sending again: the connection failed, or the
// transaction met another.
func mayPass(err error) bool {
	if errors.Is(err, errNoConnection) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return store.IsConflict(err) || !definite(err)
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pglaunch"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// stopTimeout bounds the end of a server, of calls and of guards.
const stopTimeout = 30 * time.Second

// database is a private PostgreSQL as it is configured by default, fsync on.
type database struct{ server *pglaunch.Server }

func startDatabase(ctx context.Context, c pglaunch.Config) (*database, error) {
	// Variables such as PGOPTIONS speak of somebody else's server.
	if err := pglaunch.UnsetClientEnv(); err != nil {
		return nil, err
	}
	server, err := pglaunch.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &database{server: server}, nil
}

func (d *database) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return d.server.Stop(ctx)
}

// create makes a database with the tables, and returns its URL.
func (d *database) create(ctx context.Context, name string) (string, error) {
	if err := d.exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	at := d.server.URL(name)
	return at, makeTables(ctx, at)
}

// loopback lets who has its URL connect to a database through the loopback interface.
func (d *database) loopback(ctx context.Context, name string) (string, error) {
	password := rand.Text() // letters and digits
	if err := d.exec(ctx, "alter role postgres password '"+password+"'"); err != nil {
		return "", err
	}
	return d.server.LoopbackURL(name, password), nil
}

func (d *database) exec(ctx context.Context, sql string) error {
	return onConn(ctx, d.server.URL("postgres"), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func makeTables(ctx context.Context, at string) error {
	pool, err := pgxpool.New(ctx, at)
	if err != nil {
		return err
	}
	defer pool.Close()
	keys, err := postgres.New(pool)
	if err != nil {
		return err
	}
	if err := keys.Migrate(ctx); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, createCharges)
	return err
}

// onConn runs do with a connection of its own.
func onConn(ctx context.Context, at string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// fill loads the table of keys with n finished rows of random keys, which expire when says. The indexes are dropped before
// and made anew after, from their own definitions.
func fill(ctx context.Context, at string, n int, when string) error {
	return onConn(ctx, at, func(conn *pgx.Conn) error {
		indexes, err := takeIndexes(ctx, conn)
		if err != nil {
			return fmt.Errorf("drop the indexes: %w", err)
		}
		if err := insertRows(ctx, conn, n, when); err != nil {
			return fmt.Errorf("load %d rows: %w", n, err)
		}
		// Not what a load leaves behind is measured, but the table as it lives: counted, its pages marked, all of it on disk.
		for _, sql := range append(indexes, "vacuum (analyze) idempotency_keys", "checkpoint") {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// insertRows inserts finished rows as calls with a message of 100 bytes leave them.
func insertRows(ctx context.Context, conn *pgx.Conn, n int, when string) error {
	const sql = `insert into idempotency_keys (scope, key, procedure, state, token, attempt, request_hash, code, response_body,
			response_bytes, created_at, completed_at, expires_at)
		select '', gen_random_uuid()::text, '/charges.v1.ChargeService/CreateCharge', 'completed', gen_random_uuid(), 1,
			'v1:sha256:' || encode(sha256(n::text::bytea), 'hex'), 'OK', jsonb_build_object('charge', jsonb_build_object(
				'id', 'ch_' || gen_random_uuid(), 'amount', '1299', 'currency', 'EUR', 'description', md5(n::text) || md5(n::text),
				'status', 'CHARGE_STATUS_CAPTURED', 'createTime', '2026-01-01T00:00:00.000000Z')),
			sha256(n::text::bytea) || sha256(n::text::bytea) || sha256(n::text::bytea) || sha256(n::text::bytea),
			now(), clock_timestamp(), now() + $2::interval + n * interval '1 microsecond'
		from generate_series(1, $1::bigint) as n`
	_, err := conn.Exec(ctx, sql, n, when)
	return err
}

// takeIndexes drops the table's indexes and returns the statements that make them anew.
func takeIndexes(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	const primaries = `select format('alter table idempotency_keys drop constraint %I', conname),
			format('alter table idempotency_keys add constraint %I %s', conname, pg_get_constraintdef(oid))
		from pg_constraint where conrelid = 'idempotency_keys'::regclass and contype = 'p'`
	const others = `select format('drop index %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
		from pg_index where indrelid = 'idempotency_keys'::regclass and not indisprimary`
	var drops, makes []string
	for _, sql := range []string{primaries, others} {
		rows, err := conn.Query(ctx, sql) //nolint:rowserrcheck // ForEachRow does
		if err != nil {
			return nil, err
		}
		var drop, create string
		_, err = pgx.ForEachRow(rows, []any{&drop, &create}, func() error {
			drops, makes = append(drops, drop), append(makes, create)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, sql := range drops {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	return makes, nil
}

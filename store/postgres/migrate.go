package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migration is one step of the schema.
type Migration struct {
	// Version counts from 1.
	Version int
	// Name is the file's, such as "001_create.sql".
	Name string
	// SQL is one or more statements, for the table and schema that the store's options name. It may run in a transaction.
	SQL string
}

// Migrations returns the schema's steps in their order, for those who apply them with a tool of their own; of the options,
// WithTable and WithSchema count. It fails where a name is not valid.
func Migrations(opts ...Option) ([]Migration, error) {
	s := &Store{table: DefaultTable}
	for _, opt := range opts {
		opt(s)
	}
	if err := s.checkNames(); err != nil {
		return nil, err
	}
	return s.migrations()
}

func (s *Store) migrations() ([]Migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("postgres: list the migrations: %w", err)
	}
	n := s.names()
	put := strings.NewReplacer("{table}", n.table, "{index}", n.index)
	all := make([]Migration, len(names))
	for i, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("postgres: read a migration: %w", err)
		}
		all[i] = Migration{Version: i + 1, Name: strings.TrimPrefix(name, "migrations/"), SQL: put.Replace(string(text))}
	}
	return all, nil
}

// Migrate brings the table to this version's schema: it makes the schema and the table where they are missing, and applies
// what is new. Any number of servers may call it at once, and again at every start; a table of a later version is left as
// it is. It runs in one transaction, and fails where the database does or the role may not create.
//
// Which steps were applied stands in a table of its own, named like the store's with "_schema" behind.
func (s *Store) Migrate(ctx context.Context) error {
	steps, err := s.migrations()
	if err != nil {
		return err
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return s.migrate(ctx, tx, steps) })
	if err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx, steps []Migration) error {
	// One at a time: "if not exists" alone fails when two create at the same moment.
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1::bigint)", s.lockID(store.ID{})); err != nil {
		return err
	}
	if err := s.createSchema(ctx, tx); err != nil {
		return err
	}
	versions := s.names().versions
	_, err := tx.Exec(ctx, "create table if not exists "+versions+
		" (version integer primary key, applied_at timestamptz not null default now())")
	if err != nil {
		return err
	}
	var applied int
	if err := tx.QueryRow(ctx, "select coalesce(max(version), 0) from "+versions).Scan(&applied); err != nil {
		return err
	}
	for _, step := range steps {
		if step.Version <= applied {
			continue
		}
		if _, err := tx.Exec(ctx, step.SQL); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
		if _, err := tx.Exec(ctx, "insert into "+versions+" (version) values ($1)", step.Version); err != nil {
			return err
		}
	}
	return nil
}

// createSchema asks first: "create schema if not exists" needs the right to create one even where it exists.
func (s *Store) createSchema(ctx context.Context, tx pgx.Tx) error {
	if s.schema == "" {
		return nil
	}
	var exists bool
	err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", s.schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = tx.Exec(ctx, "create schema "+pgx.Identifier{s.schema}.Sanitize())
	return err
}

package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/internal/behind"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Defaults of a store's options.
const (
	// DefaultTable is the table's name.
	DefaultTable = "idempotency_keys"
	// DefaultTimeout bounds each wait for a connection and each flight.
	DefaultTimeout = 5 * time.Second
)

// maxTableName leaves room within PostgreSQL's 63 bytes for the names that are made from the table's.
const maxTableName = 48

// Store is a [store.Store] in PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool          *pgxpool.Pool
	transactional bool
	schema, table string
	isolation     pgx.TxIsoLevel
	timeout       time.Duration
	logger        *slog.Logger
	sql           statements
	closedTx      pgx.Tx // what a handler's transaction is once the handler has returned
	recent        *recent
	behind        behind.Group
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Renewer = (*Store)(nil)
	_ store.Drainer = (*Store)(nil)
)

// New makes a leased store on pool, which it neither configures nor closes. It sends nothing: a database that is down, or
// a table that is missing, is found out by the first call.
func New(pool *pgxpool.Pool, opts ...Option) (*Store, error) { return newStore(pool, false, opts) }

// NewTransactional makes a transactional store on pool, which it neither configures nor closes. A call holds one
// connection of the pool while its handler runs; a handler that takes a second one from the same pool can starve when the
// pool is small, so let it use [Querier].
func NewTransactional(pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	return newStore(pool, true, opts)
}

func newStore(pool *pgxpool.Pool, transactional bool, opts []Option) (*Store, error) {
	s := &Store{
		pool:          pool,
		transactional: transactional,
		table:         DefaultTable,
		isolation:     pgx.ReadCommitted,
		timeout:       DefaultTimeout,
		closedTx:      newClosedTx(),
		recent:        newRecent(),
	}
	for _, opt := range opts {
		opt(s)
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if pool == nil {
		return nil, errors.New("postgres: no pool")
	}
	if err := s.checkNames(); err != nil {
		return nil, err
	}
	if s.timeout <= 0 {
		return nil, fmt.Errorf("postgres: the timeout is %v, and must be more than zero", s.timeout)
	}
	s.sql = newStatements(s.names(), savepointName())
	return s, nil
}

func (s *Store) checkNames() error {
	if s.table == "" || len(s.table) > maxTableName {
		return fmt.Errorf("postgres: the table's name has %d bytes, and must have 1 to %d", len(s.table), maxTableName)
	}
	return nil
}

// savepointName is one name per store rather than per attempt, so that its statements can stay prepared, and random, so
// that no handler's own SQL names it.
func savepointName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand.Read
	return "idempotency_" + hex.EncodeToString(b[:])
}

// Option configures a [Store].
type Option func(*Store)

// WithTable sets the table's name. Default [DefaultTable]. At most 48 bytes; any characters, upper and lower case kept.
func WithTable(name string) Option { return func(s *Store) { s.table = name } }

// WithSchema sets the schema that the table is in. By default, and where empty, the connection's search_path decides.
// Servers that share a table must name it alike, since the names are part of a key's lock.
func WithSchema(name string) Option { return func(s *Store) { s.schema = name } }

// WithIsolation sets the isolation level of a transactional store's transactions. Default pgx.ReadCommitted, whatever the
// database's own default is; the empty level leaves it to the database. At a higher level a claim that meets a concurrent
// one may fail with ErrConflict. A leased store's claim runs at the connection's default level.
func WithIsolation(level pgx.TxIsoLevel) Option { return func(s *Store) { s.isolation = level } }

// WithTimeout bounds each wait for a connection of the pool, and, apart from it, each flight to the database. Default
// [DefaultTimeout]; must be more than zero. The handler's own statements are not bounded by it.
func WithTimeout(d time.Duration) Option { return func(s *Store) { s.timeout = d } }

// WithLogger sets where the store says what went wrong behind an answer. Default, and where nil, slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(s *Store) { s.logger = logger } }

// Transactional reports whether the store was made by NewTransactional.
func (s *Store) Transactional() bool { return s.transactional }

// Claim claims an absent key, in one flight. A key that this store saw settled lately is looked at first: that answers a
// retry, and costs a flight more where the key is free again.
func (s *Store) Claim(ctx context.Context, c store.Claim) (found store.Found, attempt store.Attempt, err error) {
	found, known, err := s.lookFirst(ctx, c.ID)
	switch {
	case err != nil:
		return store.Found{}, nil, fmt.Errorf("postgres: claim: %w", err)
	case known:
		return found, nil, nil
	case s.transactional:
		found, attempt, err = s.begin(ctx, c, nil)
	default:
		found, attempt, err = s.claimLeased(ctx, c)
	}
	if found.State == store.Completed || found.State == store.NotKept {
		s.recent.add(c.ID)
	}
	return found, attempt, err
}

// TakeOver claims a key whose row had expired or whose lease was over, in one flight.
func (s *Store) TakeOver(ctx context.Context, c store.Claim, seen store.Token) (store.Found, store.Attempt, error) {
	if s.transactional {
		return s.begin(ctx, c, &seen)
	}
	return s.takeOverLeased(ctx, c, seen)
}

// Drain waits until the rollbacks behind answers have ended, or ctx does, whose error it returns then.
func (s *Store) Drain(ctx context.Context) error { return s.behind.Wait(ctx) }

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// foundRow is what foundColumns are read into.
type foundRow struct {
	state       string
	token       [16]byte
	attempt     int
	requestHash string
	procedure   string
	expiresAt   pgtype.Timestamptz
	leaseUntil  pgtype.Timestamptz // null where the key is not in progress
	now         time.Time          // the server's
	code        *string
	reply       []byte
}

func (r *foundRow) targets() []any {
	return []any{&r.state, &r.token, &r.attempt, &r.requestHash, &r.procedure, &r.expiresAt, &r.leaseUntil, &r.now,
		&r.code, &r.reply}
}

func (r *foundRow) found(id store.ID) (store.Found, error) {
	state, err := store.ParseState(r.state)
	if err != nil {
		return store.Found{}, fmt.Errorf("postgres: read a key's row: %w", err)
	}
	f := store.Found{
		ID:          id,
		State:       state,
		Token:       r.token,
		Attempt:     r.attempt,
		RequestHash: r.requestHash,
		Procedure:   r.procedure,
		LeaseLeft:   left(r.leaseUntil, r.now),
	}
	f.Expired = f.LeaseLeft <= 0 && left(r.expiresAt, r.now) <= 0
	if state == store.InProgress {
		return f, nil
	}
	f.Record = store.Record{State: state, Reply: r.reply}
	if r.code != nil {
		f.Record.Code = parseCode(*r.code)
	}
	return f, nil
}

// left is how long it is until a row's time has come; null is now.
func left(t pgtype.Timestamptz, now time.Time) time.Duration {
	switch {
	case !t.Valid:
		return 0
	case t.InfinityModifier == pgtype.Infinity:
		return math.MaxInt64
	case t.InfinityModifier == pgtype.NegativeInfinity:
		return math.MinInt64
	default:
		return t.Time.Sub(now)
	}
}

// scanFound reads the row that lookSQL found, if any.
func scanFound(row pgx.Row, id store.ID) (store.Found, error) {
	var r foundRow
	switch err := row.Scan(r.targets()...); {
	case errors.Is(err, pgx.ErrNoRows):
		return store.Found{ID: id}, nil
	case err != nil:
		return store.Found{}, err
	}
	return r.found(id)
}

// Look reads rows without claiming, in one flight. A transactional attempt in flight is known by its lock.
func (s *Store) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	if len(ids) > store.MaxLook {
		return nil, fmt.Errorf("postgres: look at %d keys: at most %d at once", len(ids), store.MaxLook)
	}
	all := make([]store.Found, len(ids))
	if len(ids) == 0 {
		return all, nil
	}
	scopes, keys, locks := make([]string, len(ids)), make([]string, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		scopes[i], keys[i], locks[i] = id.Scope, id.Key, s.lockID(id)
	}
	queue := func(b *pgx.Batch) {
		b.Queue(s.sql.locked, locks)
		b.Queue(s.sql.lookMany, scopes, keys)
	}
	err := s.query(ctx, queue, func(results pgx.BatchResults) error {
		locked, err := readLocked(results)
		if err != nil {
			return err
		}
		for i, id := range ids {
			all[i] = store.Found{ID: id}
		}
		if err := readMany(results, all); err != nil {
			return err
		}
		for _, n := range locked {
			if f := &all[n-1]; f.State == store.Absent || stale(*f) {
				*f = outOfSight(f.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: look: %w", err)
	}
	return all, nil
}

// readLocked reads which keys' locks are held, counted from 1.
func readLocked(results pgx.BatchResults) ([]int, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// readMany reads the rows that there are into their places, counted from 1.
func readMany(results pgx.BatchResults, all []store.Found) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var r foundRow
		if err := rows.Scan(append([]any{&n}, r.targets()...)...); err != nil {
			return err
		}
		if all[n-1], err = r.found(all[n-1].ID); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Forget deletes a key's row, in one flight. A transactional attempt in flight has no row yet, and is out of its reach.
func (s *Store) Forget(ctx context.Context, id store.ID) (bool, error) {
	n, err := s.exec(ctx, s.sql.forget, id.Scope, id.Key)
	if err != nil {
		return false, fmt.Errorf("postgres: forget: %w", err)
	}
	return n > 0, nil
}

// A code stands in the table as google.rpc.Code's name, or as its number where it has none.
func codeText(c code.Code) string { return c.String() }

// parseCode returns -1 for what is no code: the guard refuses a row whose code is not its reply's.
func parseCode(text string) code.Code {
	if n, ok := code.Code_value[text]; ok {
		return code.Code(n)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if c := code.Code(n); err == nil && codeText(c) == text {
		return c
	}
	return -1
}

package postgres

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// recentKeys is how many keys a store remembers, in 8 bytes each: 256 KiB.
const recentKeys = 1 << 15

// recent remembers which keys a store saw settled last, each by a hash, until another takes its place. A call with one of
// them is most likely a retry, which a look alone answers: no claim is tried, and no transaction begun. It is a guess: what
// it has wrong, or has forgotten, costs a flight in vain and changes no answer.
type recent struct {
	seed maphash.Seed
	keys [recentKeys]atomic.Uint64
}

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

func (r *recent) at(id store.ID) (place *atomic.Uint64, hash uint64) {
	hash = maphash.Comparable(r.seed, id)
	return &r.keys[hash%recentKeys], hash
}

func (r *recent) add(id store.ID) {
	place, hash := r.at(id)
	place.Store(hash)
}

func (r *recent) has(id store.ID) bool {
	place, hash := r.at(id)
	return place.Load() == hash
}

// lookFirst looks at a key that was settled lately, in one flight. It returns false where the key is to be claimed.
func (s *Store) lookFirst(ctx context.Context, id store.ID) (found store.Found, known bool, err error) {
	if !s.recent.has(id) {
		return store.Found{}, false, nil
	}
	err = s.flight(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		found, err = scanFound(conn.QueryRow(ctx, s.sql.look, id.Scope, id.Key), id)
		return explain(err)
	})
	return found, err == nil && found.State != store.Absent && !stale(found), err
}

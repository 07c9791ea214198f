package postgres

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/jackc/pgx/v5"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// names are the table's and what is derived from it, quoted.
type names struct {
	table, versions, index string
}

func (s *Store) names() names {
	qualified := func(name string) string {
		if s.schema == "" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{s.schema, name}.Sanitize()
	}
	return names{
		table:    qualified(s.table),
		versions: qualified(s.table + "_schema"),
		index:    pgx.Identifier{s.table + "_expiry"}.Sanitize(),
	}
}

// lockID is the advisory lock of a key: the first 64 bits of SHA-256 over table, scope and key, each with its length. Two
// keys with one lock would only be told "in progress" while the other runs.
func (s *Store) lockID(id store.ID) int64 {
	input := make([]byte, 0, 512)
	for _, part := range []string{s.schema, s.table, id.Scope, id.Key} {
		input = binary.AppendUvarint(input, uint64(len(part)))
		input = append(input, part...)
	}
	sum := sha256.Sum256(input)
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits are a lock's id
}

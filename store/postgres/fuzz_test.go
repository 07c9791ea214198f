package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// FuzzRow reads what may stand in a table that others can write to.
func FuzzRow(f *testing.F) {
	f.Add("completed", 1, "v1:sha256:00", true, int64(-1), true, "OK", []byte("reply"))
	f.Add("in_progress", 2, "", false, int64(1<<62), false, "", []byte(nil))
	f.Add("not_kept", -1, "\xff", true, int64(0), false, "code_99", []byte{0})
	f.Add("absent", 0, "", false, int64(0), true, "17x", []byte(nil))
	f.Fuzz(func(t *testing.T, state string, attempt int, hash string, expired bool, left int64, coded bool, code string, reply []byte) {
		now := time.Now()
		at := func(d time.Duration) pgtype.Timestamptz { return pgtype.Timestamptz{Time: now.Add(d), Valid: true} }
		r := foundRow{
			state: state, attempt: attempt, requestHash: hash, now: now, expiresAt: at(time.Hour), leaseUntil: at(time.Duration(left)),
			reply: reply,
		}
		if expired {
			r.expiresAt = at(-time.Hour)
		}
		if coded {
			r.code = &code
		}
		found, err := r.found(store.ID{Key: "k"})
		if err != nil {
			return
		}
		if found.State.String() != state {
			t.Errorf("the state %q was read as %v", state, found.State)
		}
		if found.Expired != (expired && left <= 0) {
			t.Errorf("expired = %v: its time is over: %v, of its lease there is left: %v", found.Expired, expired, left)
		}
		if c := found.Record.Code; coded && found.State != store.InProgress && codeText(c) != code && c != -1 {
			t.Errorf("the code %q was read as %v", code, c)
		}
	})
}

package store

import (
	"context"
	"errors"
	"time"
)

// Store remembers keys. All its methods are safe for concurrent use, by any number of processes that share the rows.
//
// An error that is none of this package's says that the store could not be reached or failed, or that ctx had ended: of
// Claim and TakeOver it says that the key is not held by the claim, or is given up when its lease ends. More ids than
// [MaxLook], or a limit beyond [MaxSweep], is an error too.
type Store interface {
	// Transactional reports whether an attempt is a transaction, in which the handler's own writes and the reply commit
	// together or not at all. Where it is not, an attempt is leased: the claim is kept before the handler runs.
	Transactional() bool

	// Claim claims an absent key. Where it wins, it returns the Attempt, which must be settled, and a Found with the
	// attempt's number and token. Where it does not, Attempt is nil and Found says what stands in the way; a key whose
	// row has expired or whose lease is over is not claimed either: TakeOver does that.
	//
	// It does not wait for another attempt. A claim whose row vanished while it looked may report InProgress, out of
	// sight.
	Claim(ctx context.Context, c Claim) (Found, Attempt, error)

	// TakeOver claims a key whose row was seen with the token seen, and had expired or was in progress under a lease
	// that was over. Where the row is no longer so, it returns what it found, which may be Absent, and a nil Attempt; where
	// a transactional attempt is taking the row over, out of sight.
	//
	// The attempt's number is 1 where the row had expired, and one more than the last attempt's elsewhere.
	TakeOver(ctx context.Context, c Claim, seen Token) (Found, Attempt, error)

	// Look reads rows without claiming, in the order of ids; a key without a row is Absent. A transactional attempt in
	// flight it reports as InProgress, out of sight, where it can tell, else as the row that was there before, or Absent. A
	// row that has expired is found, with Expired set, until it is swept. At most [MaxLook] ids.
	Look(ctx context.Context, ids []ID) ([]Found, error)

	// Forget deletes the row, whatever its state, and reports whether there was one. An attempt that holds the key is
	// fenced from then on, but for a transactional one in flight, whose row is not there yet. It is for operators.
	Forget(ctx context.Context, id ID) (bool, error)

	// Sweep deletes at most limit expired rows, beginning at from, and returns where the next call goes on and how
	// many it deleted. The zero Cursor is the beginning. Fewer than limit say that there are no more for now. Rows that
	// another Sweep is deleting are passed over. Limit is 1 to [MaxSweep].
	Sweep(ctx context.Context, from Cursor, limit int) (Cursor, int, error)
}

// Attempt is a claim that won. Complete or Release ends it; neither depends on the context of the call it belongs to, so
// callers pass one that outlives the client. After either has returned nil, or an error of this package's, neither may be
// called again, but for a leased attempt's Release. An Attempt is not for concurrent use.
type Attempt interface {
	// Context returns ctx with what the handler needs added to it: the transaction, for a transactional attempt.
	Context(ctx context.Context) context.Context

	// Complete keeps r for the key, with a copy of r.Reply, and for at least one lease of the claim's from now. A late one
	// succeeds where no other attempt has come in between. The handler's own writes, where the attempt is transactional, are undone before if
	// r.Code is not OK, unless keepWrites is set; otherwise keepWrites says nothing.
	//
	// It fails with ErrFenced where the key is no longer the attempt's; and, transactional alone, with ErrConflict or
	// ErrRejected, in which case nothing was done. After any other error: a leased attempt may call Complete again; of a
	// transactional one nothing was done, or it was done whole and the key's next call finds the record.
	Complete(ctx context.Context, r Record, keepWrites bool) error

	// Release makes the key absent, so that the next call runs, and undoes the handler's writes where the attempt is
	// transactional. A row that was taken over is gone too. Of a leased attempt nil says that it held its key until then.
	//
	// It fails with ErrFenced, leased alone, where the key is no longer the attempt's: it is left alone. After any other
	// error the key may have been released, or may have been another's, or is held still; a leased attempt may call Release
	// again, and ErrFenced then says that nothing is left to release. A store that cannot tell which of its own sendings
	// deleted the row, or whether any did, returns such an error, never nil or ErrFenced.
	Release(ctx context.Context) error
}

// Renewer is implemented by stores whose attempts are leased.
type Renewer interface {
	// Renew makes the lease of every token that still holds its key last for lease from now, even if it was over or lasted
	// longer, and returns those that hold nothing any more, having settled or lost their key. It waits for no lock: a row
	// that is locked meanwhile keeps the lease it has, and is not reported lost. At most [MaxLook] tokens.
	Renew(ctx context.Context, held []Held, lease time.Duration) (lost []Token, err error)
}

// Held names a claim that is to be renewed.
type Held struct {
	ID    ID
	Token Token
}

// Drainer is implemented by stores that finish work behind an answer, such as the rollback of a claim that lost.
type Drainer interface {
	// Drain waits until no such work is left, or ctx ends. The store can be used on.
	Drain(ctx context.Context) error
}

// Cursor is where a sweep goes on, by a time of expiry and, within it, a row: nothing before it is left to be swept. Only
// the store that made it can read it.
type Cursor struct {
	ExpiresAt time.Time
	ID        ID
}

const (
	// MaxLook is how many ids one Look or Renew may name.
	MaxLook = 10_000
	// MaxSweep is how many rows one Sweep may delete.
	MaxSweep = 100_000
)

// IsConflict reports whether err says that a transaction met a concurrent one: ErrConflict, or anything in its chain that
// reports SQLSTATE 40001 (serialization_failure) or 40P01 (deadlock_detected), as pgx's errors do.
func IsConflict(err error) bool {
	if errors.Is(err, ErrConflict) {
		return true
	}
	var s interface{ SQLState() string }
	if !errors.As(err, &s) {
		return false
	}
	return s.SQLState() == "40001" || s.SQLState() == "40P01"
}

var (
	// ErrFenced says that the key is held by another attempt, or by none, and that nothing was changed.
	ErrFenced = errors.New("store: the attempt no longer holds its key")
	// ErrConflict says that the attempt's transaction met a concurrent one (PostgreSQL's 40001 or 40P01). Nothing was
	// done; the same call may succeed when run again.
	ErrConflict = errors.New("store: the transaction met a conflict, nothing was done")
	// ErrRejected says that the attempt's transaction cannot be committed as the handler left it: a statement in it had
	// failed, the handler ended it, or a constraint refused it.
	ErrRejected = errors.New("store: the handler's transaction cannot be committed")
)

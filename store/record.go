package store

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
)

// ID names a row. Two scopes never meet, whatever their keys.
//
// The guard sees to it that Scope is valid UTF-8 without U+0000, of at most 255 bytes, and that Key is 1 to 255 visible
// ASCII characters, so that both fit an index entry of any store.
type ID struct {
	Scope string
	Key   string
}

// Token names one attempt and fences it: 128 random bits, made before the claim is sent. The zero Token is no attempt.
type Token [16]byte

// NewToken makes a token that no other attempt has.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // never fails: see crypto/rand.Read
	return t
}

// IsZero reports whether t names no attempt.
func (t Token) IsZero() bool { return t == Token{} }

// State is the state of a key.
type State uint8

const (
	// Absent is the state of a key that has no row. It is the zero State.
	Absent State = iota
	// InProgress is the state of a key that an attempt holds, or held until its lease ran out.
	InProgress
	// Completed is the state of a key whose reply is kept.
	Completed
	// NotKept is the state of a key that ran and whose reply could not be kept: it is not replayed and never runs again.
	NotKept
)

// String returns "absent", "in_progress", "completed" or "not_kept", as it stands in a store's table.
func (s State) String() string {
	switch s {
	case Absent:
		return "absent"
	case InProgress:
		return "in_progress"
	case Completed:
		return "completed"
	case NotKept:
		return "not_kept"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// ParseState is the reverse of [State.String].
func ParseState(text string) (State, error) {
	for _, s := range []State{Absent, InProgress, Completed, NotKept} {
		if s.String() == text {
			return s, nil
		}
	}
	return Absent, fmt.Errorf("store: unknown state %q", text)
}

// Claim asks for the right to run a key.
type Claim struct {
	ID ID
	// Token fences the attempt, should the claim win. It is new for every claim.
	Token Token
	// RequestHash is the request's fingerprint, 1 to 255 visible ASCII characters: kept as it is.
	RequestHash string
	// Procedure is kept for people who look at the rows; nothing is decided by it.
	Procedure string
	// TTL is how long the row is kept, counted from the claim. At least two leases.
	TTL time.Duration
	// Lease is how long the claim is good for unless it is renewed. More than zero.
	Lease time.Duration
}

// Record is what a completed key keeps.
type Record struct {
	// State is Completed or NotKept.
	State State
	// Code is the code that the first caller saw; OK for a message.
	Code code.Code
	// Reply is the reply's exact form, opaque to the store and returned byte for byte. It is empty for NotKept.
	Reply []byte
	// Readable writes the same reply as JSON, for people and for queries; nil if there is none. A store that keeps no
	// such form never calls it. It is set on the way in, and nil in what a store returns. Where it fails, or the store
	// cannot hold what it writes, the reply is kept without it.
	Readable json.Marshaler
}

// Found is what a store knows about a key at one moment.
type Found struct {
	ID ID
	// State is Absent where there is no row. A row that has expired is reported in the state it was in, with Expired set.
	State State
	// Token is the attempt that holds, held or completed the key. It is zero where the row is out of sight: a
	// transactional attempt in flight has not committed its row, so State is InProgress and all else is unknown.
	Token Token
	// Attempt counts the attempts since the key was last absent, from 1.
	Attempt int
	// RequestHash is the fingerprint of the request that claimed the key. It is empty where the row is out of sight.
	RequestHash string
	// Procedure is the procedure that claimed the key.
	Procedure string
	// Expired says that the row's time is over: the key counts as absent, and TakeOver claims it as new. A row in
	// progress under a live lease is never expired.
	Expired bool
	// LeaseLeft is how long the lease of a key in progress still lasts; zero or less once it is over. It is zero for a
	// row out of sight, whose attempt is alive as long as its transaction.
	LeaseLeft time.Duration
	// Record is what was kept, for Completed and NotKept. Its bytes are the caller's.
	Record Record
}

// OutOfSight reports whether the key is held by an attempt whose row cannot be seen: a transactional one, in flight.
func (f Found) OutOfSight() bool { return f.State == InProgress && f.Token.IsZero() }

// LeaseOver reports whether the key is in progress under a lease that ran out, so that TakeOver may claim it.
func (f Found) LeaseOver() bool {
	return f.State == InProgress && !f.Token.IsZero() && f.LeaseLeft <= 0
}

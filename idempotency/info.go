package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
)

// Info is what a handler may know of the key it runs under.
type Info struct {
	// Scope and Key are as the server and the client named them.
	Scope, Key string
	// Attempt counts the runs under this key since it was last absent, from 1. More than 1 says that an earlier attempt
	// lost its lease, and may have done part of the work.
	Attempt int
}

// DerivedKey returns a key for a call on another system, as a UUID: the same on every attempt, different for every scope,
// key and step. Step names the call within the handler, such as "capture".
func (i Info) DerivedKey(step string) string {
	h := sha256.New()
	for _, part := range []string{i.Scope, i.Key, step} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: made by a rule of its own (RFC 9562, section 5.8)
	u[8] = u[8]&0x3f | 0x80 // variant
	text := hex.EncodeToString(u)
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// FromContext returns what the handler's context says of its key, and false where the call runs without one. Safe for
// concurrent use.
func FromContext(ctx context.Context) (Info, bool) {
	if r, ok := ctx.Value(runKey{}).(*runState); ok {
		return r.info, true
	}
	return Info{}, false
}

// KeepWrites says that what the handler wrote in its transaction is to be committed even if it returns an error that is
// kept (a "declined" that is to be remembered with the attempt's own rows, say). Without it the writes of such a call are
// undone. It does nothing for an error that is released, on a leased store, or without a key. Safe for concurrent use,
// until the handler returns.
func KeepWrites(ctx context.Context) {
	if r, ok := ctx.Value(runKey{}).(*runState); ok {
		r.keepWrites.Store(true)
	}
}

type runKey struct{}

// runState is what a running handler shares with the guard through its context.
type runState struct {
	info       Info
	keepWrites atomic.Bool
}

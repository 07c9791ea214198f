package idempotency

import (
	"context"
	"time"
)

// Outcome says how a guarded call ended.
type Outcome string

// Every guarded call ends with exactly one of these, but for Waiting and TakenOver, which come in addition, before it ends.
const (
	// Executed: the handler ran and its reply is kept.
	Executed Outcome = "executed"
	// Released: the handler ran and its reply is not an answer (or it panicked), so a retry runs.
	Released Outcome = "released"
	// NotKept: the handler ran, now or in an earlier call, and its reply could not be kept.
	NotKept Outcome = "not_kept"
	// Replayed: the reply of an earlier call was given.
	Replayed Outcome = "replayed"
	// Reused: the key belongs to another request.
	Reused Outcome = "reused"
	// InProgress: another attempt holds the key.
	InProgress Outcome = "in_progress"
	// Waiting: an attempt holds the key, or a call with it that waits too, and this call begins to wait; see [WithWaiting].
	Waiting Outcome = "waiting"
	// TakenOver: the key was claimed from an attempt whose lease was over.
	TakenOver Outcome = "taken_over"
	// Invalid: there was no key where one is required, or it was malformed.
	Invalid Outcome = "invalid"
	// Failed: anything else; Event.Err says what.
	Failed Outcome = "failed"
)

// Event is one outcome, for logs and metrics.
type Event struct {
	Procedure string
	Outcome   Outcome
	// Duration is how long the call took in all, the handler included.
	Duration time.Duration
	// KeyDigest names the key in logs: the first 12 hexadecimal digits of SHA-256 over scope and key. The key itself never
	// stands in a log. Empty where there was no valid key.
	KeyDigest string
	// Attempt is the attempt's number where the handler ran, else 0.
	Attempt int
	// Err is what the caller was refused with, or why the reply was not kept. It may hold causes that the caller does not
	// see. Nil where all went well.
	Err error
}

// Observer is told each outcome, in the call's own goroutine before it is answered: it should be quick, and must not panic.
// It is called concurrently.
type Observer func(ctx context.Context, e Event)

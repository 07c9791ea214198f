// Package journal is what the kit's processes write down of what they did, in a form that outlives a kill -9: each event is
// one write to a file, so that the kernel has it before the process goes on.
package journal

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Now is the machine's monotonic clock, in nanoseconds: the same in every process, and out of reach of a process whose own
// clock is wrong.
func Now() int64 {
	var t unix.Timespec
	// It cannot fail: the clock is there on every system, and t is writable.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// Kind says what an event is about.
type Kind string

// Kinds of events.
const (
	// Invoke is a call of the store's, before it is made. Return, with the same Op, is its result; where the process was
	// killed in between there is none.
	Invoke Kind = "invoke"
	Return Kind = "return"
	// Run is a handler that begins, with its Token, Attempt and Charge.
	Run Kind = "run"
	// Outcome is what the guard told its observer.
	Outcome Kind = "outcome"
)

// Call is a call of the store's.
type Call string

// Calls of the store's.
const (
	Claim    Call = "claim"
	TakeOver Call = "take over"
	Complete Call = "complete"
	Release  Call = "release"
	Look     Call = "look"
	Renew    Call = "renew"
)

// Result says how a call ended.
type Result string

// Results of calls.
const (
	// OK is a call that returned no error; Won says whether a claim or take-over won, Lost that a renewed lease is lost.
	OK Result = "ok"
	// Fenced and Rejected are definite: nothing was done. Rejected stands for a conflict too.
	Fenced   Result = "fenced"
	Rejected Result = "rejected"
	// Unknown is any other error: it was done or not, or will be.
	Unknown Result = "unknown"
)

// Event is one line of a journal.
type Event struct {
	At   int64  `json:"at"` // Now
	Kind Kind   `json:"kind"`
	Op   uint64 `json:"op,omitempty"`
	Call Call   `json:"call,omitempty"`
	Key  string `json:"key,omitempty"`

	Token   string `json:"token,omitempty"`   // of the attempt that calls or runs
	Seen    string `json:"seen,omitempty"`    // of a take-over
	Lease   int64  `json:"lease,omitempty"`   // asked for, in nanoseconds
	Reply   string `json:"reply,omitempty"`   // digest of what a completion keeps
	Attempt int    `json:"attempt,omitempty"` // of a run
	Charge  string `json:"charge,omitempty"`  // of a run
	Text    string `json:"text,omitempty"`    // of an outcome, or of an error

	Result Result `json:"result,omitempty"`
	Won    bool   `json:"won,omitempty"`
	Lost   bool   `json:"lost,omitempty"`
	Found  *Found `json:"found,omitempty"`
}

// Found is what a call saw of a key.
type Found struct {
	State     store.State `json:"state"` // its number
	Token     string      `json:"token,omitempty"`
	Attempt   int         `json:"attempt,omitempty"`
	LeaseLeft int64       `json:"lease_left,omitempty"` // in nanoseconds
	Reply     string      `json:"reply,omitempty"`
}

// Writer appends events to a file. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	ops  uint64
}

// Create makes a journal.
func Create(name string) (*Writer, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &Writer{file: file}, nil
}

// Invoke writes down a call that is about to be made, and returns its Op.
func (w *Writer) Invoke(e Event) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops++
	e.Kind, e.Op, e.At = Invoke, w.ops, Now()
	w.write(e)
	return e.Op
}

// Write writes down any other event, as of now.
func (w *Writer) Write(e Event) {
	e.At = Now() // before the wait for others: a call has returned by then
	w.Append(e)
}

// Append writes an event down as it is.
func (w *Writer) Append(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(e)
}

// write panics where it fails: without its journal a run proves nothing.
func (w *Writer) write(e Event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("journal: %v", err))
	}
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

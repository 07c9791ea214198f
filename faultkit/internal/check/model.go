package check

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/journal"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// leaseSlack is how much sooner than by the machine's monotonic clock the database may take a lease to be over: its wall
// clock may be slewed.
const leaseSlack = 20 * time.Millisecond

// keyState is the state of one key: the table's row, or, held by a transactional attempt, the lock.
type keyState struct {
	held, completed bool // neither: absent
	token           string
	attempt         int
	mortal          bool  // a transactional attempt that did not complete: it may end at any moment
	leaseEnd        int64 // the lease is not over before
	reply           string
}

// step is a call as the model takes it.
type step struct {
	*call

	maybe     bool // it has its effect or none, at any time from its start on
	mortal    bool // of a transactional claim that won
	effective bool // of a renewal that certainly found the row unlocked
}

// model is the table of states in store's documentation, for one key.
func model(transactional bool) porcupine.Model {
	apply := applyLeased
	if transactional {
		apply = applyTransactional
	}
	return porcupine.Model{
		Init: func() any { return keyState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, _ := state.(keyState)
			c, _ := input.(step)
			return apply(s, c)
		},
	}
}

// applyLeased says whether a call's result can be right in a state, and which state follows.
func applyLeased(s keyState, c step) (bool, keyState) {
	switch c.Call {
	case journal.Claim, journal.TakeOver:
		return s.claimed(c)
	case journal.Complete:
		return s.completedBy(c)
	case journal.Release:
		return s.releasedBy(c)
	case journal.Renew:
		held := s.held && s.token == c.Token
		if held && c.effective {
			s.leaseEnd = max(s.leaseEnd, c.start+c.Lease)
		}
		return held != c.Lost, s
	default:
		return s.shows(c), s
	}
}

// claimed is a claim, or a take-over of the attempt that was seen.
func (s keyState) claimed(c step) (bool, keyState) {
	free := s == keyState{}
	if c.Call == journal.TakeOver {
		free = s.held && s.token == c.Seen && c.end >= s.leaseEnd-int64(leaseSlack)
	}
	next := s.heldBy(c, s.attempt+1) // absent counts no attempt
	switch {
	case c.Won:
		return free && c.Found.Attempt == next.attempt, next
	case c.maybe && free:
		return true, next
	case c.maybe:
		return true, s
	default:
		return s.shows(c), s
	}
}

// completedBy is a completion. One that succeeded may be sent again.
func (s keyState) completedBy(c step) (bool, keyState) {
	mine := s.token == c.Token && s != keyState{}
	switch {
	case c.Result == journal.Fenced:
		return !mine, s
	case mine:
		return true, keyState{completed: true, token: c.Token, attempt: s.attempt, reply: c.Reply}
	default:
		return c.maybe, s
	}
}

// releasedBy is a release.
func (s keyState) releasedBy(c step) (bool, keyState) {
	mine := s.held && s.token == c.Token
	switch {
	case c.Result == journal.Fenced:
		return !mine, s
	case mine:
		return true, keyState{}
	default:
		return c.maybe, s
	}
}

// applyTransactional is the same where the lock is the claim. What only ends an attempt that did not complete is not in
// the history: such an attempt is mortal.
func applyTransactional(s keyState, c step) (bool, keyState) {
	switch {
	case c.Call == journal.Complete && s.held && s.token == c.Token:
		return true, keyState{completed: true, token: c.Token, attempt: s.attempt, reply: c.Reply}
	case c.Call == journal.Complete:
		return c.maybe, s
	case c.Won:
		next := s.heldBy(c, 1)
		next.leaseEnd, next.mortal = 0, c.mortal
		return !s.completed && (!s.held || s.mortal) && c.Found.Attempt == next.attempt, next
	case s.held && c.Found.State == store.Absent:
		return true, s // the row of an attempt in flight cannot be seen
	default:
		return s.shows(c), s
	}
}

func (s keyState) heldBy(c step, attempt int) keyState {
	return keyState{held: true, token: c.Token, attempt: attempt, leaseEnd: c.start + c.Lease}
}

// shows reports whether a call that changed nothing can have seen what it found.
func (s keyState) shows(c step) bool {
	f := c.Found
	switch f.State {
	case store.Absent:
		return s == keyState{}
	case store.InProgress:
		over := f.LeaseLeft <= 0
		return s.held && s.token == f.Token && s.attempt == f.Attempt && (!over || c.end >= s.leaseEnd-int64(leaseSlack))
	case store.Completed:
		return s.completed && s.token == f.Token && s.attempt == f.Attempt && s.reply == f.Reply
	default:
		return false // no reply of a target is too large to be kept
	}
}

// operations are a key's calls as the model takes them, without those that say nothing.
func (h *history) operations(key string, transactional bool) []porcupine.Operation {
	calls := h.calls[key]
	seen := make(map[string]bool) // tokens that others saw
	for _, c := range calls {
		seen[c.Seen] = true
		if c.Found != nil && c.Found.Token != c.Token {
			seen[c.Found.Token] = true
		}
	}
	var ops []porcupine.Operation
	add := func(s step) {
		end := s.end
		if s.maybe {
			end = math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{Input: s, Call: s.start, Return: end})
	}
	for _, c := range calls {
		s := step{call: c}
		if transactional {
			if h.tellsTransactional(key, &s) {
				add(s)
			}
			continue
		}
		if claims := c.Call == journal.Claim || c.Call == journal.TakeOver; claims && !c.Won && seen[c.Token] {
			// It says that it failed or lost, and yet its token was in the row: by a first sending whose answer was lost.
			unanswered := *c
			unanswered.Found, unanswered.end = nil, math.MaxInt64
			add(step{call: &unanswered, maybe: true})
		}
		if tellsLeased(calls, &s) {
			add(s)
		}
	}
	return ops
}

// tellsLeased reports whether a call of a leased store says anything about the key, and completes s.
func tellsLeased(calls []*call, s *step) bool {
	switch s.Call {
	case journal.Complete, journal.Release:
		s.maybe = s.Result != journal.OK && s.Result != journal.Fenced
		return true
	case journal.Renew:
		s.effective = alone(calls, s.call)
		return s.Result == journal.OK
	default:
		return s.Result == journal.OK && (s.Won || !outOfSight(s.Found))
	}
}

// tellsTransactional is the same for a transactional store.
func (h *history) tellsTransactional(key string, s *step) bool {
	switch s.Call {
	case journal.Complete:
		s.maybe = s.Result == journal.Unknown
		return s.maybe || s.Result == journal.OK
	case journal.Claim, journal.TakeOver, journal.Look:
		s.mortal = s.Won && !h.completed(key, s.Token)
		return s.Result == journal.OK && (s.Won || !outOfSight(s.Found))
	default:
		return false
	}
}

func outOfSight(f *journal.Found) bool { return f.State == store.InProgress && f.Token == "" }

// alone reports whether no other call of the key's that locks its row went on at the same time.
func alone(calls []*call, c *call) bool {
	for _, other := range calls {
		if other != c && other.Call != journal.Look && other.start <= c.end && c.start <= other.end {
			return false
		}
	}
	return true
}

package memory

import (
	"bytes"
	"cmp"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// row is what the store keeps of a key. The store's mutex guards it.
type row struct {
	id          store.ID
	token       store.Token
	number      int // of the attempt
	requestHash string
	procedure   string
	state       store.State
	code        code.Code
	reply       []byte // nobody else's
	expiresAt   time.Time
	leaseEnd    time.Time
	end         time.Time // when the row counts as absent
	index       int       // in byEnd, or removed
}

const removed = -1

// setEnd is called after every change of state, expiresAt or leaseEnd. A live lease keeps a row from expiring.
func (r *row) setEnd() {
	r.end = r.expiresAt
	if r.state == store.InProgress && r.leaseEnd.After(r.end) {
		r.end = r.leaseEnd
	}
}

func (r *row) expired(now time.Time) bool { return !now.Before(r.end) }

// found returns what the row says at now, with a reply that is the caller's own.
func (r *row) found(now time.Time) store.Found {
	f := store.Found{
		ID:          r.id,
		State:       r.state,
		Token:       r.token,
		Attempt:     r.number,
		RequestHash: r.requestHash,
		Procedure:   r.procedure,
		Expired:     r.expired(now),
	}
	if r.state == store.InProgress {
		f.LeaseLeft = r.leaseEnd.Sub(now)
		return f
	}
	f.Record = store.Record{State: r.state, Code: r.code, Reply: bytes.Clone(r.reply)}
	return f
}

// byEnd is a heap (see container/heap) of rows in the order in which they expire, then of scope and key.
type byEnd []*row

func (h byEnd) Len() int { return len(h) }

func (h byEnd) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(a.end.Compare(b.end), cmp.Compare(a.id.Scope, b.id.Scope), cmp.Compare(a.id.Key, b.id.Key)) < 0
}

func (h byEnd) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *byEnd) Push(r any) {
	added := r.(*row)
	added.index = len(*h)
	*h = append(*h, added)
}

// Pop is for package heap.
func (h *byEnd) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil // let it be collected
	*h = (*h)[:last]
	r.index = removed
	return r
}

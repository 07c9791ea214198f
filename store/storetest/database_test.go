package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// database is what a transactional store and a leased one share in the suite's own tests: rows, the keys that
// transactions hold, and committed effects. Its faults break the stores.
type database struct {
	faults

	mu       sync.Mutex // held for the whole of each call, so that one call is one step
	rows     *memory.Store
	inFlight map[store.ID]*transaction
	effects  map[string]int
	closed   bool
}

// faults are what is wrong with a database's stores.
type faults struct {
	showsInFlight       bool // Look sees transactions in flight
	saysNothing         bool // Claim does not say that a key out of sight is in progress
	leasedIsBlind       bool // the leased store knows nothing of transactions
	unfenced            bool // Complete overwrites whatever there is
	keepsOnFence        bool // Complete fences every transaction, and commits its effects
	reportsLost         bool // Renew calls a claim lost which a transaction is taking over
	writesAtOnce        bool // effects do not wait for the commit
	keepsOnRelease      bool // Release commits effects
	keepsOnError        bool // Complete commits effects with every error
	neverKeepsOnError   bool // Complete commits effects with no error
	dropsIfNotKept      bool // Complete commits no effects with a reply that is not kept
	failsOnReadable     bool // a readable form that cannot be had undoes the effects
	commitsFailed       bool // Complete commits a failed transaction
	rejectsWithoutName  bool // the error of a failed transaction is not ErrRejected
	rejectsError        bool // a failed transaction cannot keep an error either
	sticksAfterFailure  bool // Release leaves a failed transaction in its place
	drainWaits          bool // Drain waits for attempts that hold their keys
	drainCloses         bool // after Drain nothing works
	leavesRowOnTakeOver bool // Release leaves the row that was taken over
}

func newDatabase(f faults) *database {
	return &database{faults: f, rows: memory.New(), inFlight: map[store.ID]*transaction{}, effects: map[string]int{}}
}

// row looks at one row. The caller has locked d.
func (d *database) row(ctx context.Context, id store.ID) store.Found {
	found, err := d.rows.Look(context.WithoutCancel(ctx), []store.ID{id})
	if err != nil {
		panic(err) // a memory store under a live context does not fail
	}
	return found[0]
}

// put writes a finished row. The caller has locked d.
func (d *database) put(ctx context.Context, c store.Claim, number int, lives time.Duration, r store.Record) error {
	if _, err := d.rows.Forget(ctx, c.ID); err != nil {
		return err
	}
	// Leases that are over at once, and are taken over, count the attempts up.
	step := store.Claim{ID: c.ID, Token: store.NewToken(), TTL: time.Hour}
	last := step
	last.Token, last.RequestHash, last.Procedure, last.TTL, last.Lease = c.Token, c.RequestHash, c.Procedure, lives, c.Lease
	if number == 1 {
		step = last
	}
	_, attempt, err := d.rows.Claim(ctx, step)
	for n := 2; n <= number && err == nil; n++ {
		next := step
		next.Token = store.NewToken()
		if n == number {
			next = last
		}
		_, attempt, err = d.rows.TakeOver(ctx, next, step.Token)
		step = next
	}
	if err != nil {
		return err
	}
	return attempt.Complete(ctx, r, false)
}

// transaction is a transactional attempt.
type transaction struct {
	db     *database
	claim  store.Claim
	number int
	seen   store.Token // of the row that is taken over, if any
	began  time.Time
	writes []string
	failed bool
	done   chan struct{}
}

type transactionKey struct{}

func (x *transaction) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, transactionKey{}, x)
}

func (x *transaction) Complete(ctx context.Context, r store.Record, keepWrites bool) error {
	d := x.db
	d.mu.Lock()
	defer d.mu.Unlock()
	x.end()
	isError := r.Code != code.Code_OK
	if isError && x.failed && d.rejectsError {
		return fmt.Errorf("complete: %w", store.ErrRejected)
	}
	if isError && !d.keepsOnError && (!keepWrites || d.neverKeepsOnError) {
		x.writes, x.failed = nil, false
	}
	if x.failed && !d.commitsFailed {
		if d.rejectsWithoutName {
			return errors.New("complete: the transaction has failed")
		}
		return fmt.Errorf("complete: %w", store.ErrRejected)
	}
	if d.keepsOnFence {
		d.commit(x)
	}
	if d.keepsOnFence || !d.unfenced && !x.holds(ctx) {
		return fmt.Errorf("complete: %w", store.ErrFenced)
	}
	if d.dropsIfNotKept && r.State == store.NotKept || d.failsOnReadable && r.Readable != nil {
		x.writes = nil
	}
	d.commit(x)
	return d.put(ctx, x.claim, x.number, x.claim.TTL-time.Since(x.began), r)
}

// commit makes x's effects seen. The caller has locked d.
func (d *database) commit(x *transaction) {
	for _, name := range x.writes {
		d.effects[name]++
	}
}

// holds reports whether the row is as it was when the transaction claimed the key, or gone.
func (x *transaction) holds(ctx context.Context) bool {
	f := x.db.row(ctx, x.claim.ID)
	return f.State == store.Absent || f.Token == x.seen && (f.Expired || f.State == store.InProgress)
}

func (x *transaction) Release(ctx context.Context) error {
	d := x.db
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sticksAfterFailure && x.failed {
		return nil
	}
	x.end()
	if d.keepsOnRelease {
		d.commit(x)
	}
	if !d.leavesRowOnTakeOver && !x.seen.IsZero() && x.holds(ctx) {
		_, err := d.rows.Forget(ctx, x.claim.ID)
		return err
	}
	return nil
}

func (x *transaction) end() {
	delete(x.db.inFlight, x.claim.ID)
	close(x.done)
}

// handlerWrites returns the Effects of a store on d.
func (d *database) handlerWrites() Effects {
	return Effects{
		Write: func(ctx context.Context, name string) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.writesAtOnce {
				d.effects[name]++
				return nil
			}
			x := ctx.Value(transactionKey{}).(*transaction)
			x.writes = append(x.writes, name)
			return nil
		},
		Count: func(_ context.Context, name string) (int, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.effects[name], nil
		},
		Fail: func(ctx context.Context) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			ctx.Value(transactionKey{}).(*transaction).failed = true
			return nil
		},
	}
}

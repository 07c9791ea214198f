package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// Each path takes its number of flights, warm, in each exec mode; describe_exec adds one to each flight that is a batch
// with arguments.
func TestFlights(t *testing.T) {
	type want struct{ claim, settle, look int }
	for mode, wants := range map[string]map[string]want{
		"leased": {
			"first call": {claim: 1, settle: 1}, "released": {claim: 1, settle: 1}, "replay": {look: 1}, "in progress": {look: 1},
			"take-over": {look: 1, claim: 1, settle: 1},
		},
		"transactional": {
			"first call": {claim: 1, settle: 1}, "released": {claim: 1, settle: 1}, "replay": {look: 1}, "in progress": {look: 1},
		},
	} {
		for name, execMode := range execModes {
			t.Run(mode+"/"+name, func(t *testing.T) {
				w := new(wire)
				pool := newPool(t, w.on, inExecMode(execMode), maxConns(2))
				s := newStore(t, mode, pool)
				m := meter{T: t, wire: w, store: s, drain: func() { drain(t, s) }}
				for range 3 { // warm each connection's statements
					m.firstCall()
					m.released()
					m.replay()
					m.inProgress()
				}
				check := func(path string, got want) {
					t.Helper()
					w := wants[path]
					if execMode == pgx.QueryExecModeDescribeExec {
						w = want{claim: 2 * w.claim, look: 2 * w.look, settle: 2 * w.settle}
						if path == "released" && mode == "transactional" {
							w.settle = 1 // a rollback has no arguments
						}
					}
					if got != w {
						t.Errorf("%s: %+v flights, want %+v", path, got, w)
					}
				}
				claim, settle := m.firstCall()
				check("first call", want{claim: claim, settle: settle})
				claim, settle = m.released()
				check("released", want{claim: claim, settle: settle})
				check("replay", want{look: m.replay()})
				check("in progress", want{look: m.inProgress()})
				if mode == "leased" {
					for range 3 {
						m.takeOver()
					}
					look, claim, settle := m.takeOver()
					check("take-over", want{look: look, claim: claim, settle: settle})
				}
			})
		}
	}
}

// meter takes the paths and counts their flights; what follows behind an answer is not counted.
type meter struct {
	*testing.T
	wire  *wire
	store store.Store
	drain func()
}

func (m meter) firstCall() (claim, settle int) {
	var a store.Attempt
	claim = m.wire.counted(func() { a = win(m, m.store, newClaim()) })
	settle = m.wire.counted(func() { complete(m, a, done("reply")) })
	return claim, settle
}

func (m meter) released() (claim, settle int) {
	var a store.Attempt
	claim = m.wire.counted(func() { a = win(m, m.store, newClaim()) })
	settle = m.wire.counted(func() {
		if err := a.Release(m.Context()); err != nil {
			m.Fatal(err)
		}
	})
	return claim, settle
}

func (m meter) replay() int {
	c := newClaim()
	complete(m, win(m, m.store, c), done("reply"))
	return m.lost(c)
}

func (m meter) inProgress() int {
	c := newClaim()
	a := win(m, m.store, c)
	n := m.lost(c)
	if err := a.Release(m.Context()); err != nil {
		m.Fatal(err)
	}
	return n
}

// lost counts the flights of a claim that does not win. A transactional one's rollback goes on behind the answer: it is
// waited for, and taken off.
func (m meter) lost(c store.Claim) int {
	n := m.wire.counted(func() {
		lose(m, m.store, c)
		m.drain()
	})
	if m.store.Transactional() {
		n--
	}
	return n
}

func (m meter) takeOver() (look, claim, settle int) {
	c := newClaim()
	c.Lease = 1000 // a microsecond
	win(m, m.store, c)
	var found store.Found
	for !found.LeaseOver() {
		look = m.wire.counted(func() { found = lose(m, m.store, c) })
	}
	var a store.Attempt
	claim = m.wire.counted(func() {
		var err error
		if _, a, err = m.store.TakeOver(m.Context(), again(c), found.Token); err != nil || a == nil {
			m.Fatalf("take-over did not win: %v", err)
		}
	})
	settle = m.wire.counted(func() { complete(m, a, done("reply")) })
	return look, claim, settle
}

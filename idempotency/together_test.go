package idempotency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// Those who wait with a call of their own process send no claim of their own, wherever the first call runs.
func TestWhoWaitsWithAnotherSendsNoClaim(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"the first call runs here": false, "the first call runs elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 50
				rows := leased()
				here, s := newWaiting(t, rows)
				first := here
				if elsewhere {
					first, _ = newWaiting(t, rows)
				}
				h := first.hang(t.Context(), t, charge("k", 1))
				results := here.waiting(t.Context(), charge("k", 1), n, neverRuns(t))
				h.returns(created("ch_1"))
				for range n {
					if res := <-results; res.err != nil || !res.replayed {
						t.Errorf("replayed = %v, %v", res.replayed, res.err)
					}
				}
				if claims := s.claims.Load(); claims != 1 {
					t.Errorf("%d claims by %d who wait, want one", claims, n)
				}
			})
		})
	}
}

// Calls that come while a claim of their process is under way wait for it, and hear what it finds.
func TestWhoComesDuringAClaimHearsWhatItFinds(t *testing.T) {
	t.Parallel()
	failing := errDown()
	for name, test := range map[string]struct {
		earlier idempotency.Call // what the key was used for, before
		claim   error            // what becomes of the claim that is under way
		refused code.Code        // what those who wait are told
		reason  string
		ran     bool // whether one of them runs
	}{
		"a reply":               {earlier: charge("k", 1)},
		"another request":       {earlier: charge("k", 2), refused: code.Code_FAILED_PRECONDITION, reason: idempotency.ReasonKeyReused},
		"a store that fails it": {claim: failing, ran: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rows := leased()
				if test.earlier.Procedure != "" {
					newRig(t, rows).mustRun(t, test.earlier, created("ch_1"))
				}
				r, s := newWaiting(t, rows)
				goOn, asked := make(chan struct{}), make(chan struct{})
				first := true
				rows.onClaim = func(context.Context) error {
					if !first {
						return nil
					}
					first = false
					close(asked)
					<-goOn
					return test.claim
				}
				runs := 0
				run := func(context.Context) idempotency.Reply {
					runs++
					return created("ch_1")
				}
				ahead := r.waiting(t.Context(), charge("k", 1), 1, run)
				<-asked
				others := r.waiting(t.Context(), charge("k", 1), 3, run)
				close(goOn)
				if res := <-ahead; test.claim != nil {
					res.requireRefused(t, code.Code_UNAVAILABLE, idempotency.ReasonStoreUnavailable)
				}
				start := time.Now()
				for range 3 {
					res := <-others
					if test.reason != "" {
						res.requireRefused(t, test.refused, test.reason)
					} else if res.err != nil {
						t.Error(res.err)
					}
				}
				if late := time.Since(start); late > 500*time.Millisecond {
					t.Errorf("they were told %v late", late)
				}
				if (runs == 1) != test.ran || runs > 1 {
					t.Errorf("%d ran", runs)
				}
				if claims := s.claims.Load(); claims > 2 {
					t.Errorf("%d claims by four calls", claims)
				}
			})
		})
	}
}

// One who tries a free key and never comes back, since what it calls panics, keeps nobody from trying after it.
func TestOneWhoPanicsWhileItTriesLeavesTheKeyToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := leased()
		h := newRig(t, rows).hang(t.Context(), t, charge("k", 1))
		r, _ := newWaiting(t, rows)
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			r.do(t.Context(), charge("k", 1), neverRuns(t))
		}()
		synctest.Wait()
		other := r.waiting(t.Context(), charge("k", 1), 1, func(context.Context) idempotency.Reply { return created("ch_1") })
		tries := 0
		rows.onClaim = func(context.Context) error {
			if tries++; tries == 1 {
				panic("a fault of the store's")
			}
			return nil
		}
		h.returns(failed(code.Code_UNAVAILABLE))
		if p := <-panicked; p == nil {
			t.Error("nothing panicked")
		}
		if res := <-other; res.err != nil || res.replayed {
			t.Errorf("the other one: replayed = %v, %v; want it to run", res.replayed, res.err)
		}
	})
}

// A key that another request holds in another process is refused to all, those too who waited with the one that asked.
func TestWhoWaitsWithAnotherIsToldOfAnotherRequestInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := leased()
		h := newRig(t, rows).hang(t.Context(), t, charge("k", 2))
		r, _ := newWaiting(t, rows)
		goOn := make(chan struct{})
		rows.onClaim = func(context.Context) error { <-goOn; return nil }
		results := r.waiting(t.Context(), charge("k", 1), 4, neverRuns(t))
		close(goOn)
		for range 4 {
			(<-results).requireRefused(t, code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
		}
		h.returns(created("ch_2"))
	})
}

func TestWhoWaitsIsObservedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := leased()
		h := newRig(t, rows).hang(t.Context(), t, charge("k", 1))
		r, _ := newWaiting(t, rows)
		results := r.waiting(t.Context(), charge("k", 1), 2, neverRuns(t))
		pass(10 * time.Second)
		told := r.told()
		if len(told) != 2 || told[0].Outcome != idempotency.Waiting || told[1].Outcome != idempotency.Waiting {
			t.Errorf("told %+v, want two that wait", told)
		}
		h.returns(created("ch_1"))
		for range 2 {
			<-results
		}
		if told := r.told()[len(told):]; len(told) != 2 || told[0].Outcome != idempotency.Replayed {
			t.Errorf("told %+v after that, want two replays", told)
		}
	})
}

// Of those who wait, one at a time tries to claim a key that seems free, however long that takes.
func TestOneAtATimeTriesAFreeKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := leased()
		h := newRig(t, rows).hang(t.Context(), t, charge("k", 1))
		r, s := newWaiting(t, rows)
		results := r.waiting(t.Context(), charge("k", 1), 3, func(context.Context) idempotency.Reply { return created("ch_1") })
		goOn := make(chan struct{})
		rows.onClaim = func(context.Context) error { <-goOn; return nil }
		h.returns(failed(code.Code_UNAVAILABLE))
		pass(5 * time.Second)
		if claims := s.claims.Load(); claims != 2 {
			t.Errorf("%d claims, want the first one's and that of one who waited", claims)
		}
		close(goOn)
		if replays := replaysAmong(t, results, 3); replays != 2 || s.claims.Load() != 2 {
			t.Errorf("%d replays after %d claims, want two after two", replays, s.claims.Load())
		}
	})
}

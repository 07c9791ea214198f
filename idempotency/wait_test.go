package idempotency_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// counted counts what is asked of a store.
type counted struct {
	*fake
	claims, looks atomic.Int32
}

func (s *counted) Claim(ctx context.Context, c store.Claim) (store.Found, store.Attempt, error) {
	s.claims.Add(1)
	return s.fake.Claim(ctx, c)
}

func (s *counted) Look(ctx context.Context, ids []store.ID) ([]store.Found, error) {
	s.looks.Add(1)
	return s.fake.Look(ctx, ids)
}

// newWaiting is a process whose calls wait, on rows that others may share.
func newWaiting(t *testing.T, rows *fake, opts ...idempotency.Option) (*rig, *counted) {
	t.Helper()
	s := &counted{fake: rows}
	r := newRig(t, rows)
	g, err := idempotency.New(s, append([]idempotency.Option{
		idempotency.WithSingleScope(), idempotency.WithWaiting(time.Minute), idempotency.WithObserver(r.observe),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	r.Guard = g
	return r, s
}

// waiting starts calls that wait, and returns where their results come.
func (r *rig) waiting(ctx context.Context, c idempotency.Call, n int, run func(context.Context) idempotency.Reply) <-chan result {
	results := make(chan result, n)
	for range n {
		go func() { results <- r.do(ctx, c, run) }()
	}
	synctest.Wait()
	return results
}

// replaysAmong takes n results, none of which may be an error, and counts the replays.
func replaysAmong(t *testing.T, results <-chan result, n int) (replays int) {
	t.Helper()
	for range n {
		res := <-results
		if res.err != nil {
			t.Fatal(res.err)
		}
		if res.replayed {
			replays++
		}
	}
	return replays
}

// Of 500 who wait on a key whose first call runs here, each gets the reply, with fewer than two statements each.
func TestAllWhoWaitGetTheReply(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"the first call runs here": false, "the first call runs elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 500
				rows := leased()
				here, s := newWaiting(t, rows)
				first := here
				if elsewhere {
					first, _ = newWaiting(t, rows)
				}
				h := first.hang(t.Context(), t, charge("k", 1))
				results := here.waiting(t.Context(), charge("k", 1), n, neverRuns(t))
				pass(10 * time.Second)
				if len(results) != 0 {
					t.Fatalf("%d of those who wait were answered", len(results))
				}
				reply := created("ch_1")
				ended := time.Now()
				h.returns(reply)
				for range n {
					if res := <-results; res.err != nil || !res.replayed || !proto.Equal(res.reply.Message, reply.Message) {
						t.Fatalf("one who waited got %v, replayed = %v, %v", res.reply, res.replayed, res.err)
					}
				}
				if late := time.Since(ended); late > 500*time.Millisecond || !elsewhere && late > 0 {
					t.Errorf("they were answered %v after the first call", late)
				}
				if asked := s.claims.Load() + s.looks.Load(); asked > 2*n {
					t.Errorf("%d statements for %d who wait", asked, n)
				}
				if looks := s.looks.Load(); looks > 40 {
					t.Errorf("%d looks in ten seconds, and they should back off", looks)
				}
			})
		})
	}
}

func TestOneOfThoseWhoWaitRunsWhenTheFirstIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newWaiting(t, leased())
		h := r.hang(t.Context(), t, charge("k", 1))
		var runs atomic.Int32
		goOn := make(chan struct{})
		results := r.waiting(t.Context(), charge("k", 1), 50, func(context.Context) idempotency.Reply {
			runs.Add(1)
			<-goOn
			return created("ch_2")
		})
		h.returns(failed(code.Code_UNAVAILABLE))
		pass(time.Second)
		if n := runs.Load(); n != 1 || len(results) != 0 {
			t.Fatalf("%d run and %d are answered, want one that runs", n, len(results))
		}
		close(goOn)
		if replays := replaysAmong(t, results, 50); replays != 49 || runs.Load() != 1 {
			t.Errorf("%d replays of %d runs, want 49 of one", replays, runs.Load())
		}
	})
}

func TestAFirstCallThatDiesIsTakenOverByOneWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := leased()
		dead := newRig(t, rows, shortLived()...)
		owner := dead.hang(t.Context(), t, charge("k", 1))
		r, _ := newWaiting(t, rows)
		var attempt int
		results := r.waiting(t.Context(), charge("k", 1), 1, func(ctx context.Context) idempotency.Reply {
			info, _ := idempotency.FromContext(ctx)
			attempt = info.Attempt
			return created("ch_2")
		})
		start := time.Now()
		if res := <-results; res.err != nil || res.replayed || attempt != 2 {
			t.Errorf("attempt %d, replayed = %v, %v; want attempt 2", attempt, res.replayed, res.err)
		}
		if waited := time.Since(start); waited > lease+500*time.Millisecond {
			t.Errorf("it was taken over after %v, of a lease of %v", waited, lease)
		}
		owner.returns(created("ch_1"))
	})
}

func TestWhoDoesNotWaitIsToldToComeBack(t *testing.T) {
	t.Parallel()
	short := time.Second
	for name, test := range map[string]struct {
		opts  []idempotency.Option
		after time.Duration
	}{
		"not asked to wait": {[]idempotency.Option{idempotency.WithWaiting(0)}, 0},
		"the time is over":  {[]idempotency.Option{idempotency.WithWaiting(short)}, short},
		"too many wait":     {[]idempotency.Option{idempotency.WithMaxWaiters(0)}, 0},
		"another procedure's policy": {[]idempotency.Option{idempotency.WithPolicy(func(_ idempotency.Call, p idempotency.Policy) idempotency.Policy {
			p.Wait = 0
			return p
		})}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := newWaiting(t, leased(), test.opts...)
				h := r.hang(t.Context(), t, charge("k", 1))
				start := time.Now()
				r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
				if waited := time.Since(start); waited != test.after {
					t.Errorf("it was told after %v, want %v", waited, test.after)
				}
				h.returns(created("ch_1"))
			})
		})
	}
}

func TestTheLimitOfThoseWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newWaiting(t, leased(), idempotency.WithMaxWaiters(2))
		h := r.hang(t.Context(), t, charge("k", 1))
		ctx, leave := context.WithCancel(t.Context())
		waits := r.waiting(ctx, charge("k", 1), 2, neverRuns(t))
		r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		leave() // and make room
		for range 2 {
			(<-waits).requireRefused(t, code.Code_CANCELLED, "")
		}
		waits = r.waiting(t.Context(), charge("k", 1), 2, neverRuns(t))
		h.returns(created("ch_1"))
		for range 2 {
			if res := <-waits; res.err != nil {
				t.Error(res.err)
			}
		}
	})
}

func TestAnotherRequestDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newWaiting(t, leased())
		h := r.hang(t.Context(), t, charge("k", 1))
		start := time.Now()
		r.mustRefuse(t, charge("k", 2), code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it was told after %v", waited)
		}
		h.returns(created("ch_1"))
	})
}

// Five hundred keys are looked up in one query.
func TestManyKeysAreAwaitedInOneQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		rows := leased()
		elsewhere, _ := newWaiting(t, rows)
		here, s := newWaiting(t, rows)
		running := make([]*hung, n)
		for i := range running {
			running[i] = elsewhere.hang(t.Context(), t, charge(fmt.Sprint("k", i), 1))
		}
		var waits sync.WaitGroup
		for i := range running {
			waits.Go(func() {
				if res := here.do(t.Context(), charge(fmt.Sprint("k", i), 1), neverRuns(t)); res.err != nil || !res.replayed {
					t.Errorf("replayed = %v, %v", res.replayed, res.err)
				}
			})
		}
		synctest.Wait()
		pass(10 * time.Second)
		for _, h := range running {
			h.returns(created("ch"))
		}
		waits.Wait()
		if claims, looks := s.claims.Load(), s.looks.Load(); claims != n || looks > 60 {
			t.Errorf("%d claims and %d looks for %d keys in ten seconds", claims, looks, n)
		}
	})
}

// A poller ends when nobody waits.
func TestCloseFindsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newWaiting(t, leased())
		h := r.hang(t.Context(), t, charge("k", 1))
		waits := r.waiting(t.Context(), charge("k", 1), 3, neverRuns(t))
		h.returns(created("ch_1"))
		for range 3 {
			<-waits
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What waits for a store that fails goes on when the store does.
func TestWaitingOutlastsAFailureOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := leased()
		var down atomic.Int32
		rows.onLook = func(context.Context) error {
			if down.Add(-1) >= 0 {
				return errDown()
			}
			return nil
		}
		r, _ := newWaiting(t, rows)
		h := r.hang(t.Context(), t, charge("k", 1))
		waits := r.waiting(t.Context(), charge("k", 1), 1, neverRuns(t))
		down.Store(3)
		h.returns(created("ch_1"))
		if res := <-waits; res.err != nil || !res.replayed {
			t.Errorf("replayed = %v, %v", res.replayed, res.err)
		}
	})
}

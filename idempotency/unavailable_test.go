package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func TestAStoreThatFailsBeforeTheRun(t *testing.T) {
	t.Parallel()
	down := errors.New("db.internal:5432 refused the connection")
	fails := func(context.Context) error { return fmt.Errorf("claim: %w", down) }
	over := func(c store.Claim) store.Found {
		return store.Found{ID: c.ID, State: store.InProgress, Token: store.NewToken(), Attempt: 1, RequestHash: c.RequestHash}
	}
	expired := func(c store.Claim) store.Found {
		return store.Found{ID: c.ID, State: store.Completed, Token: store.NewToken(), Attempt: 1, Expired: true}
	}
	for name, prepare := range map[string]func(*fake){
		"claiming":             func(s *fake) { s.onClaim = fails },
		"taking over":          func(s *fake) { s.finds, s.onTakeOver = over, fails },
		"taking over, expired": func(s *fake) { s.finds, s.onTakeOver = expired, fails },
	} {
		for mode, newStore := range eachMode() {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				s := newStore()
				prepare(s)
				r := newRig(t, s)
				e := r.refusal(t, charge("k", 1), code.Code_UNAVAILABLE, idempotency.ReasonStoreUnavailable)
				if d := retryDelay(t, e); d != time.Second || len(e.Metadata["retry-after"]) != 1 || e.Metadata["retry-after"][0] != "1" {
					t.Errorf("told to come back in %v, %v; want 1s", d, e.Metadata)
				}
				if strings.Contains(e.Message, down.Error()) || !errors.Is(e, down) {
					t.Errorf("the client is told %q, with the cause %v; want the cause kept from the client", e.Message, e.Cause)
				}
				if o := r.told(); len(o) != 1 || o[0].Outcome != idempotency.Failed || !errors.Is(o[0].Err, down) || o[0].Attempt != 0 {
					t.Errorf("observed %+v, want failed alone", o)
				}
				s.finds, s.onClaim, s.onTakeOver = nil, nil, nil
				r.mustRun(t, charge("k", 1), created("ch_1"))
			})
		}
	}
}

func TestACallerThatLeavesBeforeItsRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		during bool // while the store is asked, not before
		late   bool
		want   code.Code
	}{
		"cancelled before":         {false, false, code.Code_CANCELLED},
		"cancelled while claiming": {true, false, code.Code_CANCELLED},
		"too late before":          {false, true, code.Code_DEADLINE_EXCEEDED},
		"too late while claiming":  {true, true, code.Code_DEADLINE_EXCEEDED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				leave := func() {
					if !c.late {
						cancel()
					}
					<-ctx.Done()
				}
				s := leased()
				if c.during {
					s.onClaim = func(got context.Context) error {
						leave()
						return got.Err()
					}
				} else {
					leave()
				}
				r := newRig(t, s)
				e := r.do(ctx, charge("k", 1), neverRuns(t)).refusal(t, c.want, "")
				if !errors.Is(e, ctx.Err()) {
					t.Errorf("the cause is %v, want the context's", e.Cause)
				}
				if o := r.told(); len(o) != 1 || o[0].Outcome != idempotency.Failed {
					t.Errorf("observed %+v, want failed alone", o)
				}
				s.onClaim = nil
				r.mustRun(t, charge("k", 1), created("ch_1"))
			})
		})
	}
}

func TestWhenARefusedCallerIsToldToComeBack(t *testing.T) {
	t.Parallel()
	running := func(left time.Duration) func(store.Claim) store.Found {
		return func(c store.Claim) store.Found {
			return store.Found{
				ID: c.ID, State: store.InProgress, Token: store.NewToken(), Attempt: 1, RequestHash: c.RequestHash, LeaseLeft: left,
			}
		}
	}
	outOfSight := func(c store.Claim) store.Found { return store.Found{ID: c.ID, State: store.InProgress} }
	for name, c := range map[string]struct {
		finds  func(store.Claim) store.Found
		lease  time.Duration
		want   time.Duration
		header string
	}{
		"a long lease":             {running(time.Hour), time.Hour, time.Second, "1"},
		"just over the delay":      {running(time.Second + 1), time.Minute, time.Second, "1"},
		"just under the delay":     {running(time.Second - 1), time.Minute, time.Second - 1, "0"},
		"the lease nearly over":    {running(1), time.Minute, 1, "0"},
		"the lease over":           {running(0), time.Minute, 0, "0"},
		"the lease long over":      {running(-time.Hour), time.Minute, 0, "0"},
		"out of sight":             {outOfSight, time.Minute, time.Second, "1"},
		"out of sight, short":      {outOfSight, 200 * time.Millisecond, 200 * time.Millisecond, "0"},
		"absent, and again absent": {func(c store.Claim) store.Found { return store.Found{ID: c.ID} }, time.Minute, time.Second, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := leased()
			s.finds = c.finds
			r := newRig(t, s, idempotency.WithLease(c.lease))
			e := r.refusal(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
			if d := retryDelay(t, e); d != c.want {
				t.Errorf("told to come back in %v, want %v", d, c.want)
			}
			if got := e.Metadata["retry-after"]; len(got) != 1 || got[0] != c.header {
				t.Errorf("retry-after is %q, want %q", got, c.header)
			}
		})
	}
}

func TestSettlingDoesNotDependOnTheCaller(t *testing.T) {
	t.Parallel()
	for mode, newStore := range eachMode() {
		for name, reply := range map[string]idempotency.Reply{"kept": created("ch_1"), "released": failed(code.Code_CANCELLED)} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newStore()
				alive := func(ctx context.Context, _ int) error {
					if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
						t.Errorf("settled under a context with the error %v, bounded = %v", ctx.Err(), bounded)
					}
					return nil
				}
				s.onComplete, s.onRelease = alive, alive
				r := newRig(t, s)
				ctx, cancel := context.WithCancel(t.Context())
				res := r.do(ctx, charge("k", 1), func(context.Context) idempotency.Reply {
					cancel()
					return reply
				})
				if res.err != nil || res.replayed {
					t.Errorf("replayed = %v, %v; want the handler's own reply", res.replayed, res.err)
				}
				if reply.Error == nil {
					r.mustReplay(t, charge("k", 1), reply.Message)
				} else {
					r.mustRun(t, charge("k", 1), created("ch_2"))
				}
			})
		}
	}
}

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

func TestALeasedCompletionThatFailsIsTriedAgainBehindTheAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply   idempotency.Reply
		outcome idempotency.Outcome
	}{
		"a reply":              {created("ch_1"), idempotency.Executed},
		"one that is not kept": {created("\xff"), idempotency.NotKept},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				down := errDown()
				s := leased()
				s.onComplete = failing(4, down)
				r := newRig(t, s, shortLived()...)
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				res := r.do(ctx, charge(secretKey, 1), (&handler{reply: c.reply}).run)
				cancel() // a caller that was answered is gone
				if res.err != nil || res.reply.Message != c.reply.Message || time.Since(start) != 0 {
					t.Fatalf("got %v, %v after %v; want the handler's own reply at once", res.reply, res.err, time.Since(start))
				}
				if o := r.told(); len(o) != 1 || o[0].Outcome != c.outcome || !errors.Is(o[0].Err, down) || o[0].Attempt != 1 {
					t.Errorf("observed %+v, want %v with the fault", o, c.outcome)
				}
				r.mustRefuse(t, charge(secretKey, 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c.outcome == idempotency.Executed {
					r.mustReplay(t, charge(secretKey, 1), c.reply.Message)
				} else {
					r.mustRefuse(t, charge(secretKey, 1), code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept)
				}
				done := s.completed()
				if len(done) != 5 {
					t.Errorf("completed in %d tries, want 5", len(done))
				}
				for _, d := range done {
					if d.record.State != done[0].record.State || string(d.record.Reply) != string(done[0].record.Reply) {
						t.Errorf("tried %+v, and then %+v", done[0].record, d.record)
					}
				}
				if log := r.logged(); strings.Count(log, "level=WARN") != 1 || strings.Contains(log, "level=ERROR") ||
					!strings.Contains(log, down.Error()) || strings.Contains(log, secretKey) {
					t.Errorf("logged %s; want one warning, without the key", log)
				}
			})
		})
	}
}

func TestACompletionIsTriedUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := leased()
		s.onComplete = func(_ context.Context, try int) error { return fmt.Errorf("try %d: %w", try, errDown()) }
		r := newRig(t, s, shortLived()...)
		start := time.Now()
		r.mustRun(t, charge(secretKey, 1), created("ch_1"))
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tried := time.Since(start); tried != lease {
			t.Errorf("tried for %v of a lease of %v", tried, lease)
		}
		tries := len(s.completed())
		if tries < 3 || tries > 20 {
			t.Errorf("tried %d times within %v", tries, lease)
		}
		log := r.logged()
		for _, want := range []string{"level=ERROR", createCharge, r.last(t).KeyDigest, fmt.Sprintf("try %d: ", tries)} {
			if !strings.Contains(log, want) {
				t.Errorf("the log says nothing of %q: %s", want, log)
			}
		}
		if strings.Contains(log, secretKey) {
			t.Errorf("the log has the key: %s", log)
		}
		s.onComplete = nil
		second := created("ch_2")
		r.mustRun(t, charge(secretKey, 1), second)
		if o := r.last(t); o.Attempt != 2 {
			t.Errorf("observed attempt %d, want 2", o.Attempt)
		}
	})
}

func TestACompletionBehindTheAnswerEndsWhereTheKeyIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := leased()
		s.onComplete = failing(1, errDown())
		r := newRig(t, s, shortLived()...)
		r.mustRun(t, charge(secretKey, 1), created("ch_1"))
		if freed, err := r.Forget(t.Context(), "", secretKey); err != nil || !freed {
			t.Fatalf("Forget = %v, %v", freed, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(s.completed()); n != 2 {
			t.Errorf("completed in %d tries, want 2", n)
		}
		if log := r.logged(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, store.ErrFenced.Error()) ||
			strings.Contains(log, secretKey) {
			t.Errorf("logged %s; want an error, without the key", log)
		}
		second := created("ch_2")
		r.mustRun(t, charge(secretKey, 1), second)
		r.mustReplay(t, charge(secretKey, 1), second.Message)
	})
}

func TestAStoreThatHangsDoesNotKeepTheAnswer(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]idempotency.Reply{"kept": created("ch_1"), "released": failed(code.Code_UNAVAILABLE)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hangs := func(ctx context.Context, try int) error {
					if try > 1 {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}
				s := leased()
				s.onComplete, s.onRelease = hangs, hangs
				r := newRig(t, s)
				start := time.Now()
				r.mustRun(t, charge("k", 1), reply)
				if waited := time.Since(start); waited != 10*time.Second {
					t.Errorf("the answer waited for %v, want 10s", waited)
				}
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if done, released := len(s.completed()), s.released(); done+released != 2 {
					t.Errorf("completed in %d tries, released in %d", done, released)
				}
			})
		})
	}
}

func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := leased()
		s.onComplete = failing(3, errDown())
		r := newRig(t, s, shortLived()...)
		r.mustRun(t, charge("k", 1), created("ch_1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want DeadlineExceeded", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// draining is a store that finishes work behind an answer.
type draining struct {
	*fake
	drained int
	err     error
}

func (d *draining) Drain(context.Context) error {
	d.drained++
	return d.err
}

func TestCloseDrainsTheStore(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"done": nil, "failed": errDown()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &draining{fake: transactional(), err: want}
			g, err := idempotency.New(s, idempotency.WithSingleScope())
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Close(t.Context()); !errors.Is(err, want) || s.drained != 1 {
				t.Errorf("Close = %v after %d drains, want %v after one", err, s.drained, want)
			}
		})
	}
}

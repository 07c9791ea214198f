package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestALeasedReleaseThatFailsIsTriedAgainBehindTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errDown()
		s := leased()
		s.onRelease = failing(2, down)
		r := newRig(t, s, shortLived()...)
		r.mustRun(t, charge("k", 1), failed(code.Code_UNAVAILABLE))
		if o := r.last(t); o.Outcome != idempotency.Released || !errors.Is(o.Err, down) {
			t.Errorf("observed %v, %v; want released with the fault", o.Outcome, o.Err)
		}
		r.mustRefuse(t, charge("k", 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.mustRun(t, charge("k", 1), created("ch_1"))
	})
}

// What an earlier try released, or another took, a later try does not find: that is no fault.
func TestAReleaseBehindTheAnswerEndsQuietlyWhereNothingIsLeftToRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := leased()
		r := newRig(t, s, shortLived()...)
		s.onRelease = func(ctx context.Context, try int) error {
			if try > 1 {
				return nil
			}
			if freed, err := r.Forget(ctx, "", "k"); err != nil || !freed {
				t.Errorf("Forget = %v, %v", freed, err)
			}
			return errDown() // the acknowledgement was lost
		}
		r.mustRun(t, charge("k", 1), failed(code.Code_UNAVAILABLE))
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.released(); n != 2 {
			t.Errorf("released in %d tries, want 2", n)
		}
		if log := r.logged(); strings.Count(log, "level=WARN") != 1 || strings.Contains(log, "level=ERROR") {
			t.Errorf("logged %s; want one warning", log)
		}
	})
}

func TestAReleaseIsTriedUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  []idempotency.Option
		level string
	}{
		"a retry takes the key over": {nil, "level=WARN"},
		"nothing takes the key over": {[]idempotency.Option{idempotency.WithoutTakeOver()}, "level=ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := leased()
				s.onRelease = func(context.Context, int) error { return errDown() }
				r := newRig(t, s, append(shortLived(), c.opts...)...)
				start := time.Now()
				r.mustRun(t, charge(secretKey, 1), failed(code.Code_UNAVAILABLE))
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if tried := time.Since(start); tried != lease {
					t.Errorf("tried for %v of a lease of %v", tried, lease)
				}
				lines := strings.Split(strings.TrimSpace(r.logged()), "\n")
				if last := lines[len(lines)-1]; len(lines) != 2 || !strings.Contains(last, c.level) || strings.Contains(last, secretKey) {
					t.Errorf("logged %s; want two lines, the last at %s, without the key", lines, c.level)
				}
			})
		})
	}
}

func TestAPanicOfAnAttemptThatLostItsKeyReleasesNothingAndLogsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := leased()
		r := newRig(t, s, shortLived()...)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not go on up")
				}
			}()
			r.do(t.Context(), charge("k", 1), func(ctx context.Context) idempotency.Reply {
				if freed, err := r.Forget(ctx, "", "k"); err != nil || !freed {
					t.Errorf("Forget = %v, %v", freed, err)
				}
				panic("late")
			})
		}()
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, log := s.released(), r.logged(); n != 1 || log != "" {
			t.Errorf("released in %d tries, and logged %q; want one try, and no word", n, log)
		}
	})
}

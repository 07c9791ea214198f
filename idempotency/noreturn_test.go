package idempotency_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// ended is how a goroutine that calls Do ended.
type ended struct {
	returned  bool
	recovered any
}

// inGoroutine calls Do in a goroutine of its own, since it may take its goroutine with it.
func inGoroutine(t *testing.T, r *rig, c idempotency.Call, run func(context.Context) idempotency.Reply) ended {
	t.Helper()
	done := make(chan ended)
	go func() {
		var e ended
		defer func() {
			e.recovered = recover()
			done <- e
		}()
		_ = r.do(t.Context(), c, run) // does not return
		e.returned = true
	}()
	return <-done
}

func TestAHandlerThatDoesNotReturnReleasesTheKey(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		run           func(context.Context) idempotency.Reply
		keep          func(context.Context, idempotency.Call, idempotency.Reply) bool
		wantRecovered any
	}{
		"a panic": {
			run:           func(context.Context) idempotency.Reply { panic(boom) },
			keep:          idempotency.Keep,
			wantRecovered: boom,
		},
		"Goexit": {
			run:  func(context.Context) idempotency.Reply { runtime.Goexit(); return idempotency.Reply{} },
			keep: idempotency.Keep,
		},
		"a panic of the keep rule": {
			run:           func(context.Context) idempotency.Reply { return created("ch_1") },
			keep:          func(context.Context, idempotency.Call, idempotency.Reply) bool { panic(boom) },
			wantRecovered: boom,
		},
	} {
		for mode, newStore := range eachMode() {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				keep := c.keep
				r := newRig(t, newStore(), idempotency.WithKeep(
					func(ctx context.Context, c idempotency.Call, r idempotency.Reply) bool { return keep(ctx, c, r) }))
				if e := inGoroutine(t, r, charge("k", 1), c.run); e.returned || e.recovered != c.wantRecovered {
					t.Fatalf("returned = %v, recovered %v; want %v to go on up", e.returned, e.recovered, c.wantRecovered)
				}
				told := r.told()
				if len(told) != 1 || told[0].Outcome != idempotency.Released || told[0].Err == nil || told[0].Attempt != 1 {
					t.Errorf("observed %+v, want released alone, with an error", told)
				}
				if n := r.store.released(); n != 1 {
					t.Errorf("released %d times", n)
				}
				keep = idempotency.Keep
				r.mustRun(t, charge("k", 1), created("ch_2"))
			})
		}
	}
}

func TestAPanicWhoseReleaseFailsIsReleasedBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errDown()
		s := leased()
		s.onRelease = failing(3, down)
		r := newRig(t, s)
		boom := errors.New("boom")
		panics := func(context.Context) idempotency.Reply { panic(boom) }
		if e := inGoroutine(t, r, charge(secretKey, 1), panics); e.recovered != any(boom) {
			t.Fatalf("recovered %v, want %v", e.recovered, boom)
		}
		if o := r.last(t); o.Outcome != idempotency.Released || !errors.Is(o.Err, down) {
			t.Errorf("observed %v, %v", o.Outcome, o.Err)
		}
		r.mustRefuse(t, charge(secretKey, 1), code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.mustRun(t, charge(secretKey, 1), created("ch_1"))
		if log := r.logged(); !strings.Contains(log, down.Error()) || strings.Contains(log, secretKey) {
			t.Errorf("the log has the key, or has not the fault: %s", log)
		}
	})
}

func TestAPanicWhoseTransactionCannotBeRolledBackIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errDown()
		s := transactional()
		s.onRelease = failing(1, down)
		r := newRig(t, s)
		boom := errors.New("boom")
		panics := func(context.Context) idempotency.Reply { panic(boom) }
		if e := inGoroutine(t, r, charge(secretKey, 1), panics); e.recovered != any(boom) {
			t.Fatalf("recovered %v, want %v", e.recovered, boom)
		}
		<-time.After(time.Minute)
		if n := s.released(); n != 1 {
			t.Errorf("released %d times: a transaction ends with its connection", n)
		}
		if log := r.logged(); !strings.Contains(log, down.Error()) || strings.Contains(log, secretKey) {
			t.Errorf("the log has the key, or has not the fault: %s", log)
		}
	})
}

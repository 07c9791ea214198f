package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// What the caller of a late attempt is told, by what has become of its key.
func TestALateAttemptsCallerHearsNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	theirs := created("theirs")
	refusedAs := func(c code.Code, reason string) func(*testing.T, result) {
		return func(t *testing.T, res result) {
			t.Helper()
			res.requireRefused(t, c, reason)
		}
	}
	forget := func(t *testing.T, r *rig) {
		t.Helper()
		if freed, err := r.Forget(t.Context(), "", "k"); err != nil || !freed {
			t.Fatalf("Forget = %v, %v", freed, err)
		}
	}
	for name, c := range map[string]struct {
		meanwhile func(*testing.T, *rig)
		want      func(*testing.T, result)
		outcome   idempotency.Outcome
	}{
		"taken over and completed": {
			func(t *testing.T, r *rig) { t.Helper(); r.mustRun(t, charge("k", 1), theirs) },
			func(t *testing.T, res result) {
				t.Helper()
				if res.err != nil || !res.replayed || !proto.Equal(res.reply.Message, theirs.Message) {
					t.Errorf("got %v, replayed = %v, %v; want the stored reply", res.reply, res.replayed, res.err)
				}
			},
			idempotency.Replayed,
		},
		"taken over and running": {
			func(t *testing.T, r *rig) {
				t.Helper()
				heir := r.hang(t.Context(), t, charge("k", 1))
				t.Cleanup(func() {
					if res := heir.returns(theirs); res.err != nil || res.reply.Message != theirs.Message {
						t.Errorf("the heir got %v, %v; want its own reply", res.reply, res.err)
					}
				})
			},
			refusedAs(code.Code_ABORTED, idempotency.ReasonKeyInProgress),
			idempotency.InProgress,
		},
		"taken over and not kept": {
			func(t *testing.T, r *rig) { t.Helper(); r.mustRun(t, charge("k", 1), created("\xff")) },
			refusedAs(code.Code_FAILED_PRECONDITION, idempotency.ReasonReplyNotKept),
			idempotency.NotKept,
		},
		"taken over and released": {
			func(t *testing.T, r *rig) { t.Helper(); r.mustRun(t, charge("k", 1), failed(code.Code_UNAVAILABLE)) },
			refusedAs(code.Code_ABORTED, idempotency.ReasonKeyInProgress),
			idempotency.InProgress,
		},
		"forgotten": {
			func(t *testing.T, r *rig) { t.Helper(); forget(t, r) },
			refusedAs(code.Code_ABORTED, idempotency.ReasonKeyInProgress),
			idempotency.InProgress,
		},
		"used with another request": {
			func(t *testing.T, r *rig) { t.Helper(); forget(t, r); r.mustRun(t, charge("k", 2), theirs) },
			refusedAs(code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused),
			idempotency.Reused,
		},
		"out of reach": {
			func(t *testing.T, r *rig) {
				t.Helper()
				r.mustRun(t, charge("k", 1), theirs)
				r.store.onLook = func(context.Context) error { return errors.New("the store is down") }
			},
			refusedAs(code.Code_UNAVAILABLE, idempotency.ReasonStoreUnavailable),
			idempotency.Failed,
		},
	} {
		for own, reply := range map[string]idempotency.Reply{
			"kept":     created("late"),
			"released": failed(code.Code_UNAVAILABLE),
		} {
			t.Run(name+"/"+own, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, leased(), shortLived()...)
					late := r.hang(t.Context(), t, charge("k", 1))
					pass(lease)
					c.meanwhile(t, r)
					c.want(t, late.returns(reply))
					if o := r.last(t); o.Outcome != c.outcome || o.Attempt != 1 {
						t.Errorf("observed %+v, want %v of attempt 1", o, c.outcome)
					}
				})
			})
		}
	}
}

func TestALateAttemptWhoseKeyIsFreeIsToldToComeBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own       idempotency.Reply
		onRelease func(context.Context, int) error
	}{
		"kept":     {own: created("late")},
		"released": {own: failed(code.Code_UNAVAILABLE)},
		"released, and the store fails": {
			own: failed(code.Code_UNAVAILABLE),
			onRelease: func(_ context.Context, try int) error {
				if try == 2 { // the heir's is the first
					return errDown()
				}
				return nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := leased()
				s.onRelease = c.onRelease
				r := newRig(t, s, shortLived()...)
				late := r.hang(t.Context(), t, charge("k", 1))
				pass(lease)
				r.mustRun(t, charge("k", 1), failed(code.Code_UNAVAILABLE))
				late.returns(c.own).requireRefused(t, code.Code_ABORTED, idempotency.ReasonKeyInProgress)
				r.mustRun(t, charge("k", 1), created("ch_3"))
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if log := r.logged(); strings.Contains(log, "level=ERROR") {
					t.Errorf("logged %s; want no error, since nothing is wrong with the key", log)
				}
			})
		})
	}
}

func TestAnAttemptWhoseKeyWasForgottenHearsNothingOfItsOwnWhileItsLeaseLives(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]idempotency.Reply{"kept": created("late"), "released": failed(code.Code_UNAVAILABLE)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased())
			late := r.hang(t.Context(), t, charge("k", 1))
			if freed, err := r.Forget(t.Context(), "", "k"); err != nil || !freed {
				t.Fatalf("Forget = %v, %v", freed, err)
			}
			late.returns(own).requireRefused(t, code.Code_ABORTED, idempotency.ReasonKeyInProgress)
		})
	}
}

func TestAnAttemptThatIsReleasedAfterItsLeaseAndHeldItsKeyHearsItsOwnReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, leased(), shortLived()...)
		late := r.hang(t.Context(), t, charge("k", 1))
		pass(2 * lease)
		own := failed(code.Code_UNAVAILABLE)
		if res := late.returns(own); res.err != nil || res.reply.Error != own.Error {
			t.Errorf("got %v, %v; want the handler's own reply", res.reply, res.err)
		}
		if o := r.last(t); o.Outcome != idempotency.Released {
			t.Errorf("observed %v, want released", o.Outcome)
		}
		r.mustRun(t, charge("k", 1), created("ch_2"))
		if o := r.last(t); o.Attempt != 1 {
			t.Errorf("observed attempt %d, want 1", o.Attempt)
		}
	})
}

func TestATransactionalAttemptThatWasFencedIsAnsweredFromTheRow(t *testing.T) {
	t.Parallel()
	r := newRig(t, transactional())
	theirs := created("theirs")
	late := r.hang(t.Context(), t, charge("k", 1))
	if freed, err := r.Forget(t.Context(), "", "k"); err != nil || !freed {
		t.Fatalf("Forget = %v, %v", freed, err)
	}
	r.mustRun(t, charge("k", 1), theirs)
	res := late.returns(created("late"))
	if res.err != nil || !res.replayed || !proto.Equal(res.reply.Message, theirs.Message) {
		t.Errorf("got %v, replayed = %v, %v; want the stored reply", res.reply, res.replayed, res.err)
	}
}

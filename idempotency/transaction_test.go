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

// sqlError is an error as pgx's are.
type sqlError string

func (e sqlError) Error() string    { return "the database's own words (SQLSTATE " + string(e) + ")" }
func (e sqlError) SQLState() string { return string(e) }

// refusedAs is how a caller is refused whose transaction failed.
type refusedAs struct {
	code   code.Code
	reason string
	retry  bool // told when to come back
}

func conflicted() refusedAs { return refusedAs{code.Code_ABORTED, idempotency.ReasonTxConflict, true} }
func unavailable() refusedAs {
	return refusedAs{code.Code_UNAVAILABLE, idempotency.ReasonStoreUnavailable, true}
}

// requireUndone fails t unless the one call that r saw is refused so, and its retry runs.
func requireUndone(t *testing.T, r *rig, res result, want refusedAs, cause error) {
	t.Helper()
	e := res.refusal(t, want.code, want.reason)
	if want.retry {
		if d, header := retryDelay(t, e), e.Metadata["retry-after"]; d < 0 || len(header) != 1 {
			t.Errorf("told to come back in %v, %q", d, header)
		}
	} else if e.Metadata["retry-after"] != nil {
		t.Errorf("told to come back: %v", e.Metadata)
	}
	if !errors.Is(e, cause) || strings.Contains(e.Message, cause.Error()) {
		t.Errorf("the client is told %q, with the cause %v; want the cause %v kept from the client", e.Message, e.Cause, cause)
	}
	if o := r.told(); len(o) != 1 || o[0].Outcome != idempotency.Failed || !errors.Is(o[0].Err, cause) || o[0].Attempt != 1 {
		t.Errorf("observed %+v, want failed alone, of attempt 1", o)
	}
	if done, released := len(r.store.completed()), r.store.released(); done+released != 1 {
		t.Errorf("completed %d times and released %d times; want one end", done, released)
	}
}

func TestATransactionalCompletionThatFails(t *testing.T) {
	t.Parallel()
	rejected := refusedAs{code.Code_INTERNAL, idempotency.ReasonTxRejected, false}
	for name, c := range map[string]struct {
		err  error
		want refusedAs
	}{
		"not known to be done":    {errDown(), unavailable()},
		"conflict":                {fmt.Errorf("commit: %w", store.ErrConflict), conflicted()},
		"serialization_failure":   {fmt.Errorf("commit: %w", sqlError("40001")), conflicted()},
		"deadlock_detected":       {fmt.Errorf("commit: %w", sqlError("40P01")), conflicted()},
		"rejected":                {fmt.Errorf("commit: %w", store.ErrRejected), rejected},
		"another SQLSTATE":        {fmt.Errorf("commit: %w", sqlError("57P01")), unavailable()},
		"rejected for a conflict": {fmt.Errorf("commit: %w: %w", store.ErrRejected, sqlError("40001")), conflicted()},
	} {
		for kind, reply := range map[string]idempotency.Reply{"a message": created("ch_1"), "an error": failed(code.Code_NOT_FOUND)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := transactional()
				s.onComplete = func(context.Context, int) error { return c.err }
				r := newRig(t, s)
				res := r.do(t.Context(), charge("k", 1), (&handler{reply: reply}).run)
				requireUndone(t, r, res, c.want, c.err)
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := len(s.completed()); n != 1 {
					t.Errorf("tried %d times: a transaction cannot be completed again", n)
				}
			})
		}
	}
}

func TestAConflictBehindTheHandlersErrorOnATransactionalStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause error
		want  refusedAs // nothing: the handler's own
	}{
		"serialization_failure": {fmt.Errorf("insert: %w", sqlError("40001")), conflicted()},
		"deadlock_detected":     {fmt.Errorf("insert: %w", sqlError("40P01")), conflicted()},
		"ours":                  {fmt.Errorf("insert: %w", store.ErrConflict), conflicted()},
		"another SQLSTATE":      {fmt.Errorf("insert: %w", sqlError("23505")), refusedAs{}},
		"none":                  {nil, refusedAs{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, transactional())
			reply := failed(code.Code_INTERNAL)
			reply.Error.Cause = c.cause
			if c.want == (refusedAs{}) {
				r.mustRun(t, charge("k", 1), reply)
				if o := r.last(t); o.Outcome != idempotency.Released {
					t.Errorf("observed %v, want released", o.Outcome)
				}
			} else {
				res := r.do(t.Context(), charge("k", 1), (&handler{reply: reply}).run)
				requireUndone(t, r, res, c.want, c.cause)
			}
			r.mustRun(t, charge("k", 1), created("ch_1"))
		})
	}
}

// A leased handler's transaction is its own affair, and so is its error.
func TestAConflictBehindTheHandlersErrorOnALeasedStore(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	reply := failed(code.Code_INTERNAL)
	reply.Error.Cause = sqlError("40001")
	r.mustRun(t, charge("k", 1), reply)
	r.mustRun(t, charge("k", 1), created("ch_1"))
}

func TestATransactionThatCannotBeRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errDown()
		s := transactional()
		s.onRelease = failing(1, down)
		r := newRig(t, s)
		res := r.do(t.Context(), charge(secretKey, 1), (&handler{reply: failed(code.Code_INTERNAL)}).run)
		requireUndone(t, r, res, unavailable(), down)
		<-time.After(time.Minute)
		if n := s.released(); n != 1 {
			t.Errorf("released %d times: a transaction ends with its connection", n)
		}
		if log := r.logged(); !strings.Contains(log, down.Error()) || strings.Contains(log, secretKey) {
			t.Errorf("the log has the key, or has not the fault: %s", log)
		}
	})
}

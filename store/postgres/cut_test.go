package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/store"
	"github.com/connect-idempotency/connect-idempotency-go/store/postgres"
)

// path is something that a store does in one flight.
type path struct {
	modes []string
	// prepare comes before the cut, and returns what is cut.
	prepare func(t *testing.T, s *postgres.Store, c store.Claim) func() error
	want    store.State // of the key, at the end
}

func paths(url string) map[string]path {
	both, leased := []string{"leased", "transactional"}, []string{"leased"}
	return map[string]path{
		"claim": {both, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			return func() error {
				complete(t, win(t, s, c), done("reply"))
				return nil
			}
		}, store.Completed},
		"take-over": {leased, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			found := overdue(t, s, c)
			return func() error {
				_, a, err := s.TakeOver(t.Context(), again(c), found.Token)
				if a == nil {
					t.Fatalf("it did not win: %v", err)
				}
				complete(t, a, done("reply"))
				return err
			}
		}, store.Completed},
		"completion": {leased, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			a := win(t, s, c)
			return func() error { return a.Complete(t.Context(), done("reply"), false) }
		}, store.Completed},
		"renewal": {leased, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			win(t, s, c)
			return func() error {
				lost, err := s.Renew(t.Context(), []store.Held{{ID: c.ID, Token: c.Token}}, time.Hour)
				if len(lost) != 0 {
					t.Errorf("lost %v", lost)
				}
				return err
			}
		}, store.InProgress},
		"look": {both, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			complete(t, win(t, s, c), done("reply"))
			return func() error {
				found, err := s.Look(t.Context(), []store.ID{c.ID})
				if err == nil && found[0].State != store.Completed {
					t.Errorf("found %+v", found)
				}
				return err
			}
		}, store.Completed},
		"replay": {both, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			complete(t, win(t, s, c), done("reply"))
			return func() error {
				if found := lose(t, s, c); string(found.Record.Reply) != "reply" {
					t.Errorf("found %+v", found)
				}
				return nil
			}
		}, store.Completed},
		"replay elsewhere": {both, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			complete(t, win(t, newStore(t, "leased", poolOn(t, url)), c), done("reply"))
			return func() error {
				if found := lose(t, s, c); string(found.Record.Reply) != "reply" {
					t.Errorf("found %+v", found)
				}
				return nil
			}
		}, store.Completed},
		"sweep": {both, func(t *testing.T, s *postgres.Store, c store.Claim) func() error {
			t.Helper()
			complete(t, win(t, s, c), done("reply"))
			return func() error {
				_, n, err := s.Sweep(t.Context(), store.Cursor{}, 10)
				if n != 0 {
					t.Errorf("%d live rows were swept", n)
				}
				return err
			}
		}, store.Completed},
	}
}

func overdue(t *testing.T, s *postgres.Store, c store.Claim) (found store.Found) {
	t.Helper()
	c.Lease = time.Microsecond
	win(t, s, c)
	for !found.LeaseOver() {
		found = lose(t, s, c)
	}
	return found
}

// Whichever flight is cut, and wherever, it is sent again on another connection, and ends as if it had not been cut. The
// COMMIT of a transaction and a release have tests of their own.
func TestEveryFlightSurvivesACut(t *testing.T) {
	url := newDatabase(t)
	for name, p := range paths(url) {
		for _, mode := range p.modes {
			for where, c := range map[string]cut{"before the server": beforeServer, "midway": midway, "before the answer": beforeAnswer} {
				t.Run(name+"/"+mode+"/"+where, func(t *testing.T) {
					s, w, _ := lossyOn(t, url, mode)
					claim := newClaim()
					run := p.prepare(t, s, claim)
					drain(t, s) // what follows behind an answer is not to be cut
					w.next(c)
					if err := run(); err != nil {
						t.Error(err)
					}
					if found := stateOf(t, s, claim.ID); found.State != p.want {
						t.Errorf("found %+v, want %v", found, p.want)
					}
				})
			}
		}
	}
}

// A release that is cut is sent again. Where the second sending finds no row, the first one may have deleted it, or another
// attempt may have had the key by then: the release says neither that it was done nor that it was fenced.
func TestALeasedReleaseThatIsCut(t *testing.T) {
	url := newDatabase(t)
	type want int
	const (
		released want = iota
		unknown
		fenced
	)
	for name, test := range map[string]struct {
		late bool // another attempt took the key over, and was released
		cut  cut
		want want
	}{
		"before the server":       {cut: beforeServer, want: released},
		"midway":                  {cut: midway, want: released},
		"before the answer":       {cut: beforeAnswer, want: unknown},
		"late, before the server": {late: true, cut: beforeServer, want: fenced}, // nothing was sent the first time
		"late, midway":            {late: true, cut: midway, want: unknown},
		"late, before the answer": {late: true, cut: beforeAnswer, want: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s, w, _ := lossyOn(t, url, "leased")
			release(t, win(t, s, newClaim())) // warm
			claim := newClaim()
			if test.late {
				claim.Lease = time.Microsecond
			}
			a := win(t, s, claim)
			if test.late {
				takeOverAndRelease(t, s, claim)
			}
			w.next(test.cut)
			err, got := a.Release(t.Context()), unknown
			switch {
			case err == nil:
				got = released
			case errors.Is(err, store.ErrFenced):
				got = fenced
			}
			if got != test.want {
				t.Errorf("Release returned %v", err)
			}
			if found := stateOf(t, s, claim.ID); found.State != store.Absent {
				t.Errorf("found %+v, want no row", found)
			}
			if err := a.Release(t.Context()); !errors.Is(err, store.ErrFenced) {
				t.Errorf("called again, it returned %v, want store.ErrFenced", err)
			}
		})
	}
}

// takeOverAndRelease has another attempt take a key over as soon as its lease is over, and releases it.
func takeOverAndRelease(t *testing.T, s *postgres.Store, c store.Claim) {
	t.Helper()
	found := stateOf(t, s, c.ID)
	for !found.LeaseOver() {
		found = stateOf(t, s, c.ID)
	}
	_, heir, err := s.TakeOver(t.Context(), again(c), found.Token)
	if err != nil || heir == nil {
		t.Fatalf("TakeOver = %v, %v", heir, err)
	}
	release(t, heir)
}

// A transactional attempt that cannot roll back frees its key all the same: its connection is closed.
func TestAReleaseThatIsCut(t *testing.T) {
	for where, c := range map[string]cut{"before the server": beforeServer, "midway": midway, "before the answer": beforeAnswer} {
		t.Run(where, func(t *testing.T) {
			s, w, watcher := lossy(t, "transactional")
			claim := newClaim()
			a := win(t, s, claim)
			tx, _ := postgres.TxFrom(a.Context(t.Context()))
			if _, err := tx.Exec(t.Context(), insertEffect); err != nil {
				t.Fatal(err)
			}
			w.next(c)
			if err := a.Release(t.Context()); err == nil {
				t.Error("released without an error")
			}
			untilFree(t, s, claim)
			if got := effects(t, watcher); got != 0 {
				t.Errorf("%d effects, want none", got)
			}
		})
	}
}

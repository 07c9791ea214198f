package target

import (
	"bytes"
	"net"
	"testing"
)

// sink is a connection that keeps what is written to it.
type sink struct {
	net.Conn

	written bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error) { return s.written.Write(b) }

func TestBreakRewritesItsStatement(t *testing.T) {
	for _, test := range []struct {
		part       Break
		sent, want string
	}{
		{BreakFencing, "where k.token = $3::uuid and", "where $3::uuid notnull   and"},
		{BreakLock, "select pg_try_advisory_xact_lock($1)", "select " + NoLock + "($1)"},
		{BreakSavepoint, "savepoint idempotency_0123456789abcdef", "select 1 -----------------------------"},
		{BreakSavepoint, "release savepoint idempotency_0123456789abcdef", "select 1 -------------------------------------"},
		{BreakSavepoint, "savepoint the_handlers_own", "savepoint the_handlers_own"},
	} {
		r, err := newRewriter(test.part)
		if err != nil {
			t.Fatal(err)
		}
		var s sink
		n, err := (&rewrittenConn{Conn: &s, rewriter: r}).Write([]byte(test.sent))
		if err != nil || n != len(test.sent) || s.written.String() != test.want {
			t.Errorf("without %s, %q is sent as %q (%d, %v)", test.part, test.sent, &s.written, n, err)
		}
	}
}

package target

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// Break names a part of the library's protection that is taken away, to show that the kit finds out.
type Break string

const (
	// BreakNothing leaves the library as it is.
	BreakNothing Break = ""
	// BreakFencing lets a late attempt of a leased store complete or release a key that is another's.
	BreakFencing Break = "fencing"
	// BreakSavepoint leaves the savepoint out of a transactional attempt.
	BreakSavepoint Break = "savepoint"
	// BreakLock lets every transactional attempt have the key's lock.
	BreakLock Break = "lock"
)

// NoLock is a function that has to be in the database for BreakLock. Its name is as long as the one that it stands for.
const NoLock = "faultkit_no_advisory_lock"

// rewriter changes the library's statements on their way to the database: nothing in the library has to give way. What
// takes a statement's place has its length, since lengths stand in the protocol's messages.
type rewriter struct {
	pattern *regexp.Regexp
	with    func(match []byte) []byte
	count   atomic.Int64
}

// newRewriter returns nil where nothing is to be broken.
func newRewriter(b Break) (*rewriter, error) {
	switch b {
	case BreakNothing:
		return nil, nil //nolint:nilnil // there is none
	case BreakFencing:
		// Completion and release name the token as $3, and nothing else does.
		return &rewriter{
			pattern: regexp.MustCompile(`k\.token = \$3::uuid`),
			with:    func([]byte) []byte { return []byte(`$3::uuid notnull  `) },
		}, nil
	case BreakSavepoint:
		return &rewriter{
			pattern: regexp.MustCompile(`(rollback to |release )?savepoint idempotency_[0-9a-f]+`),
			with: func(match []byte) []byte {
				return append([]byte("select 1 --"), bytes.Repeat([]byte("-"), len(match)-len("select 1 --"))...)
			},
		}, nil
	case BreakLock:
		return &rewriter{
			pattern: regexp.MustCompile(`pg_try_advisory_xact_lock`),
			with:    func([]byte) []byte { return []byte(NoLock) },
		}, nil
	default:
		return nil, fmt.Errorf("target: there is no %q to break", b)
	}
}

// dial makes a connection whose outgoing statements are rewritten.
func (r *rewriter) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &rewrittenConn{Conn: conn, rewriter: r}, nil
	}
}

type rewrittenConn struct {
	net.Conn

	rewriter *rewriter
}

// Write sends b, which pgx hands over a flight at a time: no statement is cut in two.
func (c *rewrittenConn) Write(b []byte) (int, error) {
	return c.Conn.Write(c.rewriter.pattern.ReplaceAllFunc(b, func(match []byte) []byte {
		c.rewriter.count.Add(1)
		return c.rewriter.with(match)
	}))
}

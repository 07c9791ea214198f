package replay

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// limit is the size of the largest reply that is kept.
const limit = 1000

// messageOf makes a message of so many bytes.
func messageOf(size int) proto.Message {
	return &testv1.Proto3Message{StringValue: strings.Repeat("x", size-3)} // a tag of one byte, a length of two
}

// errorOf makes an error whose code, text and details have so many bytes as they are stored.
func errorOf(size int) func() error {
	return func() error {
		e := connect.NewError(connect.CodeNotFound, errors.New(strings.Repeat("x", size-5))) // a code of two bytes before them
		return e
	}
}

// At the limit a reply is replayed; one byte over it, the first caller gets it, the table keeps that it ran, and a retry is
// refused.
func TestReplyAtTheSizeLimit(t *testing.T) {
	shared := newTable(t)
	for _, mode := range modes {
		r := newRig(t, shared, mode, idempotency.WithMaxReplySize(limit))
		for _, size := range []int{limit - 1, limit} {
			if got := proto.Size(messageOf(size)); got != size {
				t.Fatalf("the message has %d bytes, want %d", got, size)
			}
			_ = r.holds(t, answer{message: messageOf(size), header: several, trailer: several}, protocols...)
			_ = r.holds(t, fails(errorOf(size)), protocols...)
		}
		for what, a := range map[string]answer{
			"a message": {message: messageOf(limit + 1), header: several, trailer: several},
			"an error":  fails(errorOf(limit + 1)),
		} {
			t.Run(mode+"/"+what, func(t *testing.T) {
				name := r.register(a)
				for _, first := range protocols {
					key := r.newKey()
					fresh, got := r.call(t, first, a.path(), name, ""), r.call(t, first, a.path(), name, key)
					if d := got.differs(fresh, a.newReply); d != "" {
						t.Errorf("over %s the first caller got another answer: %s", first.name, d)
					}
					r.mustNotBeKept(t, a, name, key)
					want := 0 // an error undoes what was done in its transaction
					if a.err == nil || mode == "leased" {
						want = 1
					}
					if n := r.effects(t, key); n != want {
						t.Errorf("it is done %d times, want %d", n, want)
					}
				}
			})
		}
	}
}

// mustNotBeKept checks what the table says of a reply that was not kept, and what a retry is told.
func (r *rig) mustNotBeKept(t tb, a answer, name, key string) {
	t.Helper()
	code := "OK"
	if a.err != nil {
		code = "NOT_FOUND"
	}
	row := r.row(t, key)
	if row.state != "not_kept" || row.code == nil || *row.code != code || row.body != nil || len(row.bytes) > 0 {
		t.Errorf("the row is %+v, want not_kept, %s and nothing else", row, code)
	}
	for _, p := range protocols {
		r.call(t, p, a.path(), name, key).mustRefuse(t, connect.CodeFailedPrecondition, idempotency.ReasonReplyNotKept)
	}
	if n := r.ran(key); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
}

// unencodable are replies that no codec writes.
var unencodable = map[string]proto.Message{
	"not UTF-8":                        &testv1.Proto3Message{StringValue: "\xff"},
	"not UTF-8, deep within":           &testv1.Proto3Message{MessagesByString: map[string]*testv1.Proto3Message{"k": {Strings: []string{"\xc0"}}}},
	"without a required field":         &testv1.Proto2Message{RequiredInt64: proto.Int64(1)},
	"without a required field, within": proto2(&testv1.Proto2Message{Repeatedgroup: []*testv1.Proto2Message_RepeatedGroup{{}}}),
	"an edition's, without one":        new(testv1.EditionMessage),
}

// The transaction of such a reply is undone, and a retry runs.
func TestUnencodableReplyTransactional(t *testing.T) {
	r := newRig(t, newTable(t), "transactional")
	for what, m := range unencodable {
		t.Run(what, func(t *testing.T) {
			a := answer{message: m}
			name, key := r.register(a), r.newKey()
			for n, p := range protocols {
				r.call(t, p, a.path(), name, key).mustRefuse(t, connect.CodeInternal, idempotency.ReasonReplyUnencodable)
				if r.ran(key) != n+1 || r.effects(t, key) != 0 {
					t.Errorf("after %d calls it ran %d times and is done %d times, want undone each time", n+1, r.ran(key), r.effects(t, key))
				}
			}
			var rows int
			if err := r.pool.QueryRow(t.Context(), "select count(*) from idempotency_keys where key = $1", key).Scan(&rows); err != nil || rows != 0 {
				t.Errorf("%d rows, %v; want none", rows, err)
			}
		})
	}
}

// In leased mode what was done is done: the first caller gets what a call without a key does, and no retry runs.
func TestUnencodableReplyLeased(t *testing.T) {
	r := newRig(t, newTable(t), "leased")
	for what, m := range unencodable {
		t.Run(what, func(t *testing.T) {
			a := answer{message: m}
			name := r.register(a)
			for _, first := range protocols {
				key := r.newKey()
				fresh, got := r.call(t, first, a.path(), name, ""), r.call(t, first, a.path(), name, key)
				if d := got.differs(fresh, a.newReply); d != "" || fresh.state(t).GetCode() != int32(connect.CodeInternal) {
					t.Errorf("over %s the first caller got another answer than %v: %s", first.name, fresh, d)
				}
				r.mustNotBeKept(t, a, name, key)
			}
		})
	}
}

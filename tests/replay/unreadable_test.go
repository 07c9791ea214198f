package replay

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// private is text of a reply that may stand in no log.
const private = "private-text"

// storedBytes marshals what a row holds.
func storedBytes(t *testing.T, s *idempotencyv1.StoredReply) []byte {
	t.Helper()
	b, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func storedMessage(t *testing.T, typeName string, value []byte) []byte {
	t.Helper()
	return storedBytes(t, &idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Message{
		Message: &idempotencyv1.Message{TypeName: typeName, Value: value},
	}})
}

// A reply that does not parse is refused over every protocol, for good; the handler does not run, and the log names the key
// by its digest and says nothing of the reply.
func TestReplyThatNoLongerParses(t *testing.T) {
	const proto3 = "connectidempotency.test.v1.Proto3Message"
	private3, err := proto.Marshal(&testv1.Proto3Message{StringValue: private})
	if err != nil {
		t.Fatal(err)
	}
	a := answer{message: &testv1.Proto3Message{StringValue: private}}
	shared := newTable(t)
	for _, mode := range modes {
		r := newRig(t, shared, mode)
		name := r.register(a)
		whole := r.newKey()
		_ = r.call(t, grpc, a.path(), name, whole)
		stored := r.row(t, whole).bytes
		for what, altered := range map[string][]byte{
			"null":                      nil,
			"empty":                     {},
			"cut short":                 stored[:len(stored)-1],
			"cut in half":               stored[:len(stored)/2],
			"no protobuf":               []byte(private),
			"JSON":                      []byte(`{"string_value":"` + private + `"}`),
			"neither message nor error": {0x98, 0x06, 1},
			"a type that is not known":  storedMessage(t, "elsewhere.v1.NotLinked", private3),
			"no type":                   storedMessage(t, "", private3),
			"a message cut short":       storedMessage(t, proto3, private3[:len(private3)-1]),
			"a message, not UTF-8":      storedMessage(t, proto3, append(private3[:len(private3)-1:len(private3)-1], 0xff)),
			"an error with the code OK": storedBytes(t, &idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Error{
				Error: &idempotencyv1.Error{Message: []byte(private)},
			}}),
			"encrypted, with no key": storedBytes(t, &idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Sealed{
				Sealed: &idempotencyv1.Sealed{KeyId: "k", Ciphertext: []byte(private)},
			}}),
		} {
			t.Run(mode+"/"+what, func(t *testing.T) {
				key := r.newKey()
				_ = r.call(t, connectProto, a.path(), name, key)
				r.exec(t, "update idempotency_keys set response_bytes = $2 where key = $1", key, altered)
				for _, p := range protocols {
					r.call(t, p, a.path(), name, key).mustRefuse(t, connect.CodeInternal, idempotency.ReasonReplyUnreadable)
					r.mustLogNothingPrivate(t, a.path(), key, private)
				}
				if n := r.ran(key); n != 1 {
					t.Errorf("the handler ran %d times", n)
				}
			})
		}
	}
}

// A row that says that there was nothing to say, as a worker's may, is replayed as an empty message.
func TestReplyOfNothing(t *testing.T) {
	nothing := answer{message: new(testv1.Proto3Message)}
	r := newRig(t, newTable(t), "leased")
	name, key := r.register(answer{message: &testv1.Proto3Message{StringValue: "something"}}), r.newKey()
	_ = r.call(t, grpc, nothing.path(), name, key)
	r.exec(t, "update idempotency_keys set response_bytes = $2 where key = $1", key, storedMessage(t, "", nil))
	empty := r.register(nothing)
	for _, p := range protocols {
		replay, fresh := r.call(t, p, nothing.path(), name, key), r.call(t, p, nothing.path(), empty, "")
		if !replay.takeMark() {
			t.Errorf("over %s: no replay: %v", p.name, replay)
		}
		if d := replay.differs(fresh, nothing.newReply); d != "" {
			t.Errorf("over %s: in the replay and a fresh, empty answer %s", p.name, d)
		}
	}
}

// mustLogNothingPrivate checks that an error was logged, with the procedure and a digest of the key, and with none of some
// texts.
func (r *rig) mustLogNothingPrivate(t tb, path, key string, texts ...string) {
	t.Helper()
	log := r.log.take()
	if !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "procedure="+path) || !strings.Contains(log, "key_digest=") {
		t.Errorf("logged: %q", log)
	}
	for _, text := range append(texts, key) {
		for _, form := range []string{text, fmt.Sprintf("%x", text), fmt.Sprintf("%v", []byte(text))} {
			if strings.Contains(log, form) {
				t.Errorf("%q is in the log: %s", form, log)
			}
		}
	}
}

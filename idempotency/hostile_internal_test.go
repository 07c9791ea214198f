package idempotency

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// What the smallest record of a message takes, in two bytes, is some hundred bytes of Go.
const (
	allocatedPerByte = 128
	allocatedAtLeast = 16 << 10
)

// Whatever stands in a row or comes with a call, reading it takes memory in proportion to its size: a length that it only
// claims to have costs nothing.
func TestHostileBytesTakeMemoryInProportionToTheirSize(t *testing.T) {
	g, err := New(nothing{}, WithSingleScope())
	if err != nil {
		t.Fatal(err)
	}
	for name, stored := range hostileReplies(t) {
		t.Run("a reply with "+name, func(t *testing.T) {
			requireProportion(t, len(stored), func() {
				_, _ = g.open(&store.Found{Record: store.Record{Reply: stored}}, nil) // most are refused
			})
		})
	}
	for name, key := range map[string]string{
		"long":                     strings.Repeat("k", 1<<20),
		"quoted and long":          `"` + strings.Repeat("k", 1<<20) + `"`,
		"quoted, with escapes":     `"` + strings.Repeat(`\"`, 1<<19) + `"`,
		"many, joined by a proxy":  strings.Repeat("k,", 1<<19),
		"blank":                    strings.Repeat(" ", 1<<20),
		"of bytes that none takes": strings.Repeat("\xff", 1<<20),
	} {
		t.Run("a key that is "+name, func(t *testing.T) {
			requireProportion(t, len(key), func() { _, _ = ParseKey(key) })
		})
	}
}

// hostileReplies are stored replies made to take more memory than they have bytes.
func hostileReplies(t *testing.T) map[string][]byte {
	t.Helper()
	record := func(field protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), value)
	}
	fields := new(idempotencyv1.StoredReply).ProtoReflect().Descriptor().Fields()
	header, message := fields.ByName("header").Number(), fields.ByName("message").Number()
	values := new(idempotencyv1.Metadata).ProtoReflect().Descriptor().Fields().ByName("values").Number()
	marshal := func(m proto.Message) []byte {
		encoded, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	reply := func(name string, value []byte) []byte {
		return marshal(&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Message{
			Message: &idempotencyv1.Message{TypeName: name, Value: value},
		}})
	}
	list := new(structpb.ListValue).ProtoReflect().Descriptor().Fields().ByName("values").Number()
	element := new(structpb.Value).ProtoReflect().Descriptor().Fields().ByName("list_value").Number()
	var nested []byte
	for range 4000 {
		nested = record(list, record(element, nested))
	}
	claims := protowire.AppendVarint(protowire.AppendTag(nil, message, protowire.BytesType), 1<<31-1)
	return map[string][]byte{
		"a length that is not there": claims,
		"names without end":          bytes.Repeat(record(header, nil), 50_000),
		"values without end":         record(header, bytes.Repeat(record(values, nil), 50_000)),
		"details without end": marshal(&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Error{
			Error: &idempotencyv1.Error{Code: 9, Details: slicesOf(50_000, new(anypb.Any))},
		}}),
		"elements without end": reply("google.protobuf.ListValue", bytes.Repeat(record(1, nil), 50_000)),
		"entries without end":  reply("google.protobuf.Struct", bytes.Repeat(record(1, nil), 50_000)),
		"levels without end":   reply("google.protobuf.ListValue", nested),
		"a long type name":     reply(strings.Repeat("a.", 50_000)+"A", nil),
	}
}

func slicesOf(n int, a *anypb.Any) []*anypb.Any {
	all := make([]*anypb.Any, n)
	for i := range all {
		all[i] = a
	}
	return all
}

// requireProportion fails t where read takes more memory than its input's size allows.
func requireProportion(t *testing.T, size int, read func()) {
	t.Helper()
	read() // what is made once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes took %d", size, took)
	if limit := uint64(size*allocatedPerByte + allocatedAtLeast); took > limit {
		t.Errorf("%d bytes took %d bytes of memory, more than %d", size, took, limit)
	}
}

// nothing is a store that is never asked.
type nothing struct{ store.Store }

func (nothing) Transactional() bool { return false }

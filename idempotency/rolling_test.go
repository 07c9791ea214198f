package idempotency_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// The request's schema as an older and as a newer server have it.
const (
	olderSchema = `
		name: "order.proto" package: "rolling" syntax: "proto2"
		message_type { name: "Order"
			field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "item" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".rolling.Item" }
			field { name: "note" number: 9 label: LABEL_OPTIONAL type: TYPE_STRING }
		}
		message_type { name: "Item" field { name: "sku" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING } }`
	newerSchema = `
		name: "order.proto" package: "rolling" syntax: "proto2"
		message_type { name: "Order"
			field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "gift" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
			field { name: "item" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".rolling.Item" }
			field { name: "count" number: 5 label: LABEL_REPEATED type: TYPE_INT32 }
			field { name: "card" number: 6 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
			field { name: "cash" number: 7 label: LABEL_OPTIONAL type: TYPE_INT64 oneof_index: 0 }
			field { name: "parcel" number: 8 label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".rolling.Order.Parcel" }
			field { name: "note" number: 9 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "tags" number: 10 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".rolling.Order.TagsEntry" }
			oneof_decl { name: "payment" }
			nested_type { name: "Parcel" field { name: "weight" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 } }
			nested_type { name: "TagsEntry" options { map_entry: true }
				field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
				field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING } }
		}
		message_type { name: "Item"
			field { name: "price" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
			field { name: "sku" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
		}`
)

func order(t *testing.T, schema string) protoreflect.MessageDescriptor {
	t.Helper()
	file := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(schema), file); err != nil {
		t.Fatal(err)
	}
	d, err := protodesc.NewFile(file, new(protoregistry.Files))
	if err != nil {
		t.Fatal(err)
	}
	return d.Messages().ByName("Order")
}

// read is a client's bytes as a server with the schema has them.
func read(t *testing.T, schema string, wire []byte) idempotency.Call {
	t.Helper()
	m := dynamicpb.NewMessage(order(t, schema))
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return idempotency.Call{Procedure: createCharge, Request: m}
}

// written is what a client of the newer schema sends.
func written(t *testing.T, text string) []byte {
	t.Helper()
	m := dynamicpb.NewMessage(order(t, newerSchema))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestServersOfDifferentSchemasMakeOneFingerprint(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string][]byte{
		"what both know":              written(t, `id: "o" note: "n"`),
		"a field between known ones":  written(t, `id: "o" gift: true note: "n"`),
		"a field of a message within": written(t, `id: "o" item { price: 7 sku: "s" } item { sku: "t" } note: "n"`),
		"a list":                      written(t, `id: "o" count: [3, 1, 2] note: "n"`),
		"a oneof":                     written(t, `cash: 5 note: "n" item { sku: "s" }`),
		"a group":                     written(t, `id: "o" Parcel { weight: 3 } note: "n"`),
		"a group with a newer field":  []byte("\x0a\x01o" + "\x43\x08\x05\x10\x03\x44" + "\x4a\x01n"), // 1, which neither knows, before 2
		"a map of one":                written(t, `id: "o" tags { key: "a" value: "b" } note: "n"`),
		"all of them": written(t, `id: "o" gift: true item { price: 7 sku: "s" } count: 1 card: "c" Parcel { weight: 3 }
			note: "n" tags { key: "a" value: "b" }`),
	} {
		older, newer := hashOf(t, read(t, olderSchema, wire)), hashOf(t, read(t, newerSchema, wire))
		if older != newer {
			t.Errorf("%s: the older server's fingerprint is %s, the newer one's %s", name, older, newer)
		}
	}
}

// The message of an extension has its records in order too, whether the server knows the extension or not.
func TestServersWithAndWithoutAnExtensionMakeOneFingerprint(t *testing.T) {
	t.Parallel()
	// Field 50 is of a newer schema, and stands between two that are known.
	within := protowire.AppendTag([]byte("\x0a\x01a\x10\x01"), 50, protowire.VarintType)
	within = append(within, 7)
	within = protowire.AppendTag(within, testv1.E_StringExtension.TypeDescriptor().Number(), protowire.BytesType)
	within = protowire.AppendString(within, "e")
	nested := testv1.E_Proto2Message_NestedExtension.TypeDescriptor().Number()
	wire := protowire.AppendBytes(protowire.AppendTag([]byte("\x0a\x01r\x10\x01"), nested, protowire.BytesType), within)

	hashes := make(map[string]bool)
	for _, known := range []*protoregistry.Types{protoregistry.GlobalTypes, new(protoregistry.Types)} {
		m := new(testv1.Proto2Message)
		if err := (proto.UnmarshalOptions{Resolver: known}).Unmarshal(wire, m); err != nil {
			t.Fatal(err)
		}
		hashes[hashOf(t, idempotency.Call{Procedure: createCharge, Request: m})] = true
	}
	if len(hashes) != 1 {
		t.Errorf("the request has %d fingerprints, want one", len(hashes))
	}
}

// Where the order says something, it is not lost.
func TestTheOrderOfAListCounts(t *testing.T) {
	t.Parallel()
	one, other := written(t, `count: [1, 2]`), written(t, `count: [2, 1]`)
	for name, schema := range map[string]string{"known": newerSchema, "unknown": olderSchema} {
		if hashOf(t, read(t, schema, one)) == hashOf(t, read(t, schema, other)) {
			t.Errorf("%s: two lists of another order have one fingerprint", name)
		}
	}
}

// Whether the servers agree or not, another request never passes for the same.
func TestAnUnknownFieldsValueCounts(t *testing.T) {
	t.Parallel()
	one, other := written(t, `id: "o" gift: true`), written(t, `id: "o" gift: false`)
	if hashOf(t, read(t, olderSchema, one)) == hashOf(t, read(t, olderSchema, other)) {
		t.Error("two requests that differ in a field that the server does not know have one fingerprint")
	}
}

func TestIgnoredFields(t *testing.T) {
	t.Parallel()
	ignore := idempotency.WithIgnoredFields("rolling.Order", "note", "item.price", "parcel.weight", "tags")
	call := func(text string) idempotency.Call {
		c := read(t, newerSchema, written(t, text))
		c.Keys = []string{"k"}
		return c
	}
	const first = `id: "o" note: "1st" item { price: 1 sku: "a" } item { price: 2 sku: "b" } tags { key: "x" value: "y" }`
	for name, test := range map[string]struct {
		retry string
		same  bool
	}{
		"a field":                     {`id: "o" note: "2nd" item { price: 1 sku: "a" } item { price: 2 sku: "b" } tags { key: "x" value: "y" }`, true},
		"a field that is not there":   {`id: "o" item { price: 1 sku: "a" } item { price: 2 sku: "b" }`, true},
		"a field within a list":       {`id: "o" note: "1st" item { price: 8 sku: "a" } item { sku: "b" } tags { key: "z" value: "" }`, true},
		"a field within what was not": {`id: "o" Parcel { weight: 3 } item { sku: "a" } item { sku: "b" }`, false},
		"a field that counts":         {`id: "p" note: "1st" item { price: 1 sku: "a" } item { price: 2 sku: "b" }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), ignore)
			r.mustRun(t, call(first), created("ch_1"))
			retry := call(test.retry)
			before := proto.Clone(retry.Request)
			res := r.do(t.Context(), retry, neverRuns(t))
			if (res.err == nil) != test.same {
				t.Errorf("the retry got %v, %v", res.reply, res.err)
			}
			if !proto.Equal(retry.Request, before) {
				t.Error("the handler's request was changed")
			}
		})
	}
}

func TestAnIgnoredFieldThatIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"no field": "nope", "no message": "id.x", "no field within": "item.nope", "empty": ""} {
		r := newRig(t, leased(), idempotency.WithIgnoredFields("rolling.Order", path))
		c := read(t, newerSchema, written(t, `id: "o" item { sku: "s" }`))
		c.Keys = []string{"k"}
		if res := r.do(t.Context(), c, neverRuns(t)); idempotency.ReasonOf(res.err) != idempotency.ReasonMisconfigured {
			t.Errorf("%s: the call got %v", name, res.err)
		}
	}
}

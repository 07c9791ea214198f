package idempotency_test

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// requestSeed is a message of each schema that FuzzFingerprintOfAnySchema draws requests from.
func requestSeeds(tb testing.TB) []proto.Message {
	tb.Helper()
	fields, err := structpb.NewStruct(map[string]any{
		"a": 1.5, "b": []any{nil, true, "x"}, "c": map[string]any{"d": "e"}, "f": math.Copysign(0, -1),
	})
	if err != nil {
		tb.Fatal(err)
	}
	within := &testv1.Proto3Message{
		DoubleValue: math.Copysign(0, -1), Int32Value: -1, OptionalString: new(""), Floats: []float32{1, 2},
		Uint64S: []uint64{1, 1 << 60}, StringsByString: map[string]string{"a": "b", "c": "", "": "d"},
		Choice: &testv1.Proto3Message_EmptyChoice{}, RenamedInJson: "é",
	}
	third := &testv1.Proto3Message{
		MessageValue: within, Messages: []*testv1.Proto3Message{within, {}}, EnumValue: 42,
		MessagesByString: map[string]*testv1.Proto3Message{"x": within, "y": {}}, BytesByInt64: map[int64][]byte{-1: {0xff}, 1: nil},
		Choice: &testv1.Proto3Message_MessageChoice{MessageChoice: &testv1.Proto3Message{StringValue: "z"}},
	}
	third.ProtoReflect().SetUnknown([]byte("\x92\x3f\x01u\x08\x01")) // field 1010, and a known number of another kind
	second := &testv1.Proto2Message{
		RequiredString: new("r"), RequiredInt64: new(int64(0)), DoubleWithDefault: new(math.NaN()),
		Optionalgroup:    &testv1.Proto2Message_OptionalGroup{Int32Value: new(int32(2)), StringValue: new("s")},
		MessagesByString: map[string]*testv1.Proto2Message{"k": {RequiredString: new("\xff")}},
	}
	proto.SetExtension(second, testv1.E_StringExtension, "e")
	proto.SetExtension(second, testv1.E_FarExtension, true)
	proto.SetExtension(second, testv1.E_Proto2Message_NestedExtension, &testv1.Proto2Message{RequiredInt64: new(int64(9))})
	edition := &testv1.EditionMessage{
		RequiredString: new("r"), Packed: []int32{1, 2}, Expanded: []int32{2, 1}, Prefixed: new(testv1.EditionMessage),
		Delimited: &testv1.EditionMessage{ExplicitInt64: new(int64(0))}, DelimitedMessages: []*testv1.EditionMessage{{}, {ImplicitInt64: 3}},
	}
	packed, err := anypb.New(within)
	if err != nil {
		tb.Fatal(err)
	}
	wellKnown := &testv1.WellKnownMessage{
		Any: packed, Duration: durationpb.New(-1), Struct: fields, Value: structpb.NewNumberValue(1),
		ValuesByString: map[string]*structpb.Value{"a": structpb.NewNullValue(), "b": structpb.NewStringValue("")},
	}
	unknown := new(emptypb.Empty)
	unknown.ProtoReflect().SetUnknown([]byte("\x12\x02\x08\x01\x08\x02"))
	return []proto.Message{third, second, edition, wellKnown, fields, unknown}
}

// FuzzFingerprintOfAnySchema holds requests of several schemas against each other: those that mean the same, however they
// were written and read, have one fingerprint, and all others have others.
func FuzzFingerprintOfAnySchema(f *testing.F) {
	seeds := requestSeeds(f)
	for i, m := range seeds {
		wire, err := (proto.MarshalOptions{Deterministic: true, AllowPartial: true}).Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), wire, wire, uint64(i))
		f.Add(uint8(i), wire, []byte(nil), uint64(1)<<i)
	}
	f.Fuzz(func(t *testing.T, schema uint8, wire, otherWire []byte, seed uint64) {
		kind := seeds[int(schema)%len(seeds)].ProtoReflect().Type()
		m, ok := readAs(kind, wire)
		if !ok {
			return
		}
		want := hashOf(t, idempotency.Call{Procedure: createCharge, Request: m})
		for name, same := range sameMeaning(t, m, seed) {
			if got := hashOf(t, idempotency.Call{Procedure: createCharge, Request: same}); got != want {
				t.Errorf("%s: the fingerprint of %v is %s, want %s", name, same, got, want)
			}
		}
		changed := proto.Clone(m)
		change(changed.ProtoReflect(), rand.New(rand.NewPCG(seed, 0)))
		others := map[string]proto.Message{"changed": changed}
		if other, ok := readAs(kind, otherWire); ok {
			others["another"] = other
		}
		for name, other := range others {
			if !proto.Equal(m, other) && hashOf(t, idempotency.Call{Procedure: createCharge, Request: other}) == want {
				t.Errorf("%s: %v and %v have one fingerprint", name, m, other)
			}
		}
		if proto.Equal(m, changed) {
			t.Errorf("nothing was changed in %v", m)
		}
	})
}

func readAs(kind protoreflect.MessageType, wire []byte) (proto.Message, bool) {
	m := kind.New().Interface()
	return m, proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(wire, m) == nil
}

// sameMeaning writes a request in several ways and reads it again.
func sameMeaning(t *testing.T, m proto.Message, seed uint64) map[string]proto.Message {
	t.Helper()
	// Maps come in another order each time.
	wire, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d := m.ProtoReflect().Descriptor()
	ordered, err := proto.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 1))
	shuffled := reorder(t, wire, d, func(numbers []protowire.Number) {
		random.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	})
	byNumber := reorder(t, ordered, d, func(numbers []protowire.Number) { slices.Sort(numbers) })
	same := make(map[string]proto.Message)
	for name, written := range map[string]struct {
		kind protoreflect.MessageType
		wire []byte
	}{
		"written again":                       {m.ProtoReflect().Type(), wire},
		"its fields in another order":         {m.ProtoReflect().Type(), shuffled},
		"without generated code":              {dynamicpb.NewMessageType(d), shuffled},
		"by a server that knows no field":     {new(emptypb.Empty).ProtoReflect().Type(), byNumber},
		"by one, its fields in another order": {new(emptypb.Empty).ProtoReflect().Type(), topShuffled(t, byNumber, random)},
	} {
		again, ok := readAs(written.kind, written.wire)
		if !ok {
			t.Fatalf("%s: %x does not parse", name, written.wire)
		}
		same[name] = again
	}
	// JSON does not write unknown fields, nor all of a NaN: it is asked only about what it keeps.
	if written, err := (protojson.MarshalOptions{AllowPartial: true}).Marshal(m); err == nil {
		again := m.ProtoReflect().New().Interface()
		read := protojson.UnmarshalOptions{AllowPartial: true}.Unmarshal(written, again) == nil
		if read && proto.Equal(m, again) && !holdsNaN(t, m) {
			same["through JSON"] = again
		}
	}
	return same
}

func holdsNaN(t *testing.T, m proto.Message) (holds bool) {
	t.Helper()
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		switch v := p.Index(-1).Value.Interface().(type) {
		case float64:
			holds = holds || math.IsNaN(v)
		case float32:
			holds = holds || math.IsNaN(float64(v))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return holds
}

// topShuffled is a message's records in another order, those of one number in theirs, with nothing changed within them.
func topShuffled(t *testing.T, wire []byte, random *rand.Rand) []byte {
	t.Helper()
	return reorder(t, wire, new(emptypb.Empty).ProtoReflect().Descriptor(), func(numbers []protowire.Number) {
		random.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	})
}

// reorder writes the records of a message, and of those within it that the schema knows, in an order of their numbers. Those
// of one number stay in theirs, which says something.
func reorder(t *testing.T, wire []byte, d protoreflect.MessageDescriptor, order func([]protowire.Number)) []byte {
	t.Helper()
	records := make(map[protowire.Number][]byte)
	for len(wire) > 0 {
		number, kind, tag := protowire.ConsumeTag(wire)
		value := protowire.ConsumeFieldValue(number, kind, wire[max(tag, 0):])
		if tag < 0 || value < 0 {
			t.Fatalf("%x is no record of %s", wire, d.FullName())
		}
		record := wire[:tag+value]
		if field := fieldOf(d, number); field != nil && field.Message() != nil {
			switch {
			case field.Kind() == protoreflect.GroupKind && kind == protowire.StartGroupType:
				content, _ := protowire.ConsumeGroup(number, record[tag:])
				record = protowire.AppendGroup(slices.Clone(record[:tag]), number, reorder(t, content, field.Message(), order))
			case field.Kind() == protoreflect.MessageKind && kind == protowire.BytesType:
				content, _ := protowire.ConsumeBytes(record[tag:])
				record = protowire.AppendBytes(slices.Clone(record[:tag]), reorder(t, content, field.Message(), order))
			}
		}
		records[number] = append(records[number], record...)
		wire = wire[tag+value:]
	}
	numbers := slices.SortedFunc(maps.Keys(records), cmp.Compare)
	order(numbers)
	var written []byte
	for _, number := range numbers {
		written = append(written, records[number]...)
	}
	return written
}

func fieldOf(d protoreflect.MessageDescriptor, number protowire.Number) protoreflect.FieldDescriptor {
	if field := d.Fields().ByNumber(number); field != nil {
		return field
	}
	if extension, err := protoregistry.GlobalTypes.FindExtensionByNumber(d.FullName(), number); err == nil {
		return extension.TypeDescriptor()
	}
	return nil
}

// change takes a field away that is there, or sets one that is not, of the message or of one within it.
func change(m protoreflect.Message, random *rand.Rand) {
	fields := m.Descriptor().Fields()
	if fields.Len() == 0 {
		m.SetUnknown(append(slices.Clone(m.GetUnknown()), "\x08\x01"...))
		return
	}
	field := fields.Get(random.IntN(fields.Len()))
	isMessage := field.Message() != nil && !field.IsList() && !field.IsMap()
	switch {
	case isMessage && m.Has(field) && random.IntN(2) == 0:
		change(m.Mutable(field).Message(), random)
	case m.Has(field):
		m.Clear(field)
	case isMessage:
		m.Mutable(field)
	case field.IsList():
		list := m.Mutable(field).List()
		list.Append(list.NewElement())
	case field.IsMap():
		entries := m.Mutable(field).Map()
		entries.Set(nonZero(field.MapKey()).MapKey(), entries.NewValue())
	default:
		m.Set(field, nonZero(field))
	}
}

func nonZero(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{1})
	default:
		return protoreflect.ValueOfString("1")
	}
}

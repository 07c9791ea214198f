package replay

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

var texts = map[string]string{
	"U+0000":             "before\x00after",
	"the escape of NUL":  `a literal \u0000, and \\u0000, and \ud800`,
	"quotes and slashes": `"\/</script>&'`,
	"control characters": "\x01\b\t\n\v\f\r\x1b\x1f\x7f\u0080\u009f",
	"emoji":              "😀 👩‍👩‍👧‍👦 🏳️‍🌈 ❤️",
	"other scripts":      "ελληνικά עברית 中文 हिन्दी \u202eevil",
	"line separators":    "\u2028\u2029\u0085",
	"noncharacters":      "\ufffe\uffff\ufdd0\U0010ffff\ufffd\ufeff",
	"blanks":             "  \t two \u00a0 ",
}

var numbers = map[string]float64{
	"minus zero":            math.Copysign(0, -1),
	"zero":                  0,
	"NaN":                   math.NaN(),
	"NaN with a payload":    math.Float64frombits(0x7ff8_0000_dead_beef),
	"negative NaN":          math.Float64frombits(0xfff8_0000_0000_0001),
	"infinity":              math.Inf(1),
	"minus infinity":        math.Inf(-1),
	"1e-320":                1e-320,
	"the smallest":          math.SmallestNonzeroFloat64,
	"the largest":           1.7976931348623157e308,
	"minus the largest":     -math.MaxFloat64,
	"over 2^53":             1<<53 + 2,
	"2^64":                  1 << 64,
	"a tenth":               0.1,
	"many digits":           123456789.12345679,
	"a thousand":            1e3,
	"where JSON goes to e+": 1e21,
	"where JSON goes to e-": 1e-7,
}

func TestTexts(t *testing.T) {
	all := make(map[string]proto.Message)
	for name, text := range texts {
		all[name] = &testv1.Proto3Message{
			StringValue:     text,
			OptionalString:  &text,
			Strings:         []string{text, "", text},
			StringsByString: map[string]string{text: text, "": ""},
			Choice:          &testv1.Proto3Message_StringChoice{StringChoice: text},
			RenamedInJson:   text,
		}
		all[name+" in a Struct"] = &structpb.Struct{Fields: map[string]*structpb.Value{
			text: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(text)}}),
		}}
		all[name+" in proto2"] = &testv1.Proto2Message{RequiredString: &text, RequiredInt64: proto.Int64(0), StringWithDefault: &text}
	}
	const notUTF8 = "\xff\x00\xc0\x80\xed\xa0\x80"
	all["not UTF-8, where a schema allows it"] = edition(&testv1.EditionMessage{UncheckedString: new(notUTF8)})
	all["not UTF-8 in proto2"] = proto2(&testv1.Proto2Message{StringWithDefault: new(notUTF8)})
	holdsForAll(t, messages(all))
}

// Once, since it takes its time.
func TestTextOfAMebibyte(t *testing.T) {
	text := strings.Repeat("long text, é 😀 \\ \" \n", 1+1<<20/len("long text, é 😀 \\ \" \n"))
	shared := newTable(t)
	_ = newRig(t, shared, "leased").holds(t, answer{message: &testv1.Proto3Message{StringValue: text}}, connectJSON)
	_ = newRig(t, shared, "transactional").holds(t, answer{message: structpb.NewStringValue(text)}, grpc)
}

func TestNumbers(t *testing.T) {
	all := make(map[string]proto.Message)
	for name, n := range numbers {
		f := float32(n)
		all[name] = &testv1.Proto3Message{
			DoubleValue: n, FloatValue: f, OptionalDouble: &n, OptionalFloat: &f,
			Doubles: []float64{n, 1, n}, Floats: []float32{f, 1},
			DoublesByBool:  map[bool]float64{true: n},
			FloatsByUint32: map[uint32]float32{1: f},
			Choice:         &testv1.Proto3Message_DoubleChoice{DoubleChoice: n},
		}
		value := structpb.NewNumberValue(n)
		all[name+" in a Value"] = value
		all[name+" in a ListValue and a Struct"] = &structpb.ListValue{Values: []*structpb.Value{
			value, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"n": value}}),
		}}
		all[name+" in proto2 with a default"] = proto2(&testv1.Proto2Message{DoubleWithDefault: &n})
	}
	for name, n := range map[string]int64{"2^53+1": 1<<53 + 1, "-2^53-1": -1<<53 - 1, "the least": math.MinInt64, "the most": math.MaxInt64} {
		u, small := uint64(n), int32(n>>32)
		all["integers: "+name] = &testv1.Proto3Message{
			Int32Value: small, Int64Value: n, Uint32Value: uint32(small), Uint64Value: u, Sint32Value: small, Sint64Value: n,
			Fixed32Value: uint32(small), Fixed64Value: u, Sfixed32Value: small, Sfixed64Value: n,
			Int64S: []int64{n, 0, -n}, Uint64S: []uint64{u, 0},
			BytesByInt64: map[int64][]byte{n: nil}, Uint64SByUint64: map[uint64]uint64{u: u},
			Sint64SBySint64: map[int64]int64{n: n}, Sfixed32SBySfixed64: map[int64]int32{n: small},
			Fixed64SByFixed32: map[uint32]uint64{uint32(small): u}, BoolsBySint32: map[int32]bool{small: true},
		}
		all["integers in a double: "+name] = structpb.NewNumberValue(float64(n))
	}
	holdsForAll(t, messages(all))
}

func TestShapes(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	zero := &testv1.Proto3Message{
		OptionalDouble: new(float64), OptionalFloat: new(float32), OptionalInt32: new(int32), OptionalInt64: new(int64),
		OptionalUint32: new(uint32), OptionalUint64: new(uint64), OptionalSint32: new(int32), OptionalSint64: new(int64),
		OptionalFixed32: new(uint32), OptionalFixed64: new(uint64), OptionalSfixed32: new(int32), OptionalSfixed64: new(int64),
		OptionalBool: new(bool), OptionalString: new(string), OptionalBytes: []byte{}, OptionalEnum: new(testv1.OpenEnum),
		OptionalMessage: new(testv1.Proto3Message), MessageValue: new(testv1.Proto3Message),
		Messages: []*testv1.Proto3Message{{}, {}},
	}
	within, err := anypb.New(withUnknown(&testv1.Proto3Message{StringValue: "in"}))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]proto.Message{
		"empty":                new(testv1.Proto3Message),
		"nil":                  (*testv1.Proto3Message)(nil),
		"bytes of every value": &testv1.Proto3Message{BytesValue: every, SeveralBytes: [][]byte{every, nil, {0}}},
		"zero with presence":   zero,
		"unknown enum numbers": &testv1.Proto3Message{
			EnumValue: 99, OptionalEnum: testv1.OpenEnum(math.MinInt32).Enum(),
			Enums: []testv1.OpenEnum{-7, 0, 1}, EnumsByInt32: map[int32]testv1.OpenEnum{-1: 77},
		},
		"known enum numbers": &testv1.Proto3Message{
			EnumValue: testv1.OpenEnum_OPEN_ENUM_NEGATIVE, Enums: []testv1.OpenEnum{testv1.OpenEnum_OPEN_ENUM_LARGEST},
		},
		"a map with every key": &testv1.Proto3Message{
			DoublesByBool:    map[bool]float64{false: 0, true: 1},
			EnumsByInt32:     map[int32]testv1.OpenEnum{math.MinInt32: 0, math.MaxInt32: 1, 0: 0},
			MessagesByString: map[string]*testv1.Proto3Message{"": {}, "in": zero},
		},
		"required fields": &testv1.Proto2Message{
			RequiredString: new(string), RequiredInt64: new(int64),
			Repeatedgroup: []*testv1.Proto2Message_RepeatedGroup{{StringValue: new(string)}},
		},
		"groups": proto2(&testv1.Proto2Message{
			Optionalgroup: &testv1.Proto2Message_OptionalGroup{StringValue: new("in")},
			Choice:        &testv1.Proto2Message_Groupchoice{Groupchoice: &testv1.Proto2Message_GroupChoice{BoolValue: new(bool)}},
		}),
		"defaults as values": proto2(&testv1.Proto2Message{
			StringWithDefault: new("default"), EnumWithDefault: testv1.ClosedEnum_CLOSED_ENUM_TWO.Enum(), DoubleWithDefault: new(float64),
		}),
		"an unknown closed enum": proto2(&testv1.Proto2Message{
			EnumWithDefault: testv1.ClosedEnum(99).Enum(), Enums: []testv1.ClosedEnum{1, 98, 2},
		}),
		"extensions": withExtensions(),
		"a delimited edition": edition(&testv1.EditionMessage{
			Delimited: edition(nil), DelimitedMessages: []*testv1.EditionMessage{edition(nil), edition(nil)}, Prefixed: edition(nil),
			Choice: &testv1.EditionMessage_DelimitedChoice{DelimitedChoice: edition(nil)},
			Packed: []int32{1, -1}, Expanded: []int32{1, -1},
		}),
		"an edition's enums": edition(&testv1.EditionMessage{
			ClosedEnum: testv1.EditionClosedEnum(9).Enum(), OpenEnum: testv1.EditionOpenEnum(9).Enum(),
			ClosedEnums: []testv1.EditionClosedEnum{0, 9, 1},
		}),
		"an edition's extensions": editionExtensions(),
		"unknown fields": withUnknown(&testv1.Proto3Message{
			StringValue: "known", MessageValue: new(testv1.Proto3Message), Messages: []*testv1.Proto3Message{{}},
			MessagesByString: map[string]*testv1.Proto3Message{"k": {}},
			Choice:           &testv1.Proto3Message_MessageChoice{MessageChoice: new(testv1.Proto3Message)},
		}),
		"unknown fields alone":            withUnknown(new(testv1.Proto3Message)),
		"unknown fields in an edition":    withUnknown(edition(&testv1.EditionMessage{Delimited: edition(nil)})),
		"unknown fields in proto2":        withUnknown(withExtensions()),
		"unknown fields of a packed type": &testv1.WellKnownMessage{Any: within},
		"nested deep":                     nested(90),
	}
	for name, choice := range map[string]*testv1.Proto3Message{
		"a double": {Choice: &testv1.Proto3Message_DoubleChoice{}}, "an int64": {Choice: &testv1.Proto3Message_Int64Choice{}},
		"a bool": {Choice: &testv1.Proto3Message_BoolChoice{}}, "a string": {Choice: &testv1.Proto3Message_StringChoice{}},
		"bytes": {Choice: &testv1.Proto3Message_BytesChoice{}}, "an enum": {Choice: &testv1.Proto3Message_EnumChoice{EnumChoice: 42}},
		"a message": {Choice: &testv1.Proto3Message_MessageChoice{MessageChoice: new(testv1.Proto3Message)}},
		"empty":     {Choice: &testv1.Proto3Message_EmptyChoice{EmptyChoice: new(testv1.Proto3Message_Empty)}},
	} {
		all["a oneof with "+name] = choice
	}
	holdsForAll(t, messages(all), protocols...)
}

// proto2 sets what is required.
func proto2(m *testv1.Proto2Message) *testv1.Proto2Message {
	m.RequiredString, m.RequiredInt64 = new("required"), new(int64(1))
	return m
}

func edition(m *testv1.EditionMessage) *testv1.EditionMessage {
	if m == nil {
		m = new(testv1.EditionMessage)
	}
	m.RequiredString, m.ExplicitInt64 = new("required"), new(int64)
	return m
}

func withExtensions() *testv1.Proto2Message {
	m := proto2(new(testv1.Proto2Message))
	proto.SetExtension(m, testv1.E_StringExtension, "an extension")
	proto.SetExtension(m, testv1.E_DoubleExtension, math.Copysign(0, -1))
	proto.SetExtension(m, testv1.E_Int64SExtension, []int64{1, -1, 1<<53 + 1})
	proto.SetExtension(m, testv1.E_PackedExtension, []int64{0, 0})
	proto.SetExtension(m, testv1.E_EnumExtension, testv1.ClosedEnum(77))
	proto.SetExtension(m, testv1.E_BytesExtension, [][]byte{{0xff}, {}})
	proto.SetExtension(m, testv1.E_Groupextension, &testv1.GroupExtension{StringValue: new("in a group")})
	proto.SetExtension(m, testv1.E_FarExtension, false)
	proto.SetExtension(m, testv1.E_Proto2Message_NestedExtension, proto2(new(testv1.Proto2Message)))
	return m
}

func editionExtensions() *testv1.EditionMessage {
	m := edition(nil)
	proto.SetExtension(m, testv1.E_EditionStringExtension, "")
	proto.SetExtension(m, testv1.E_EditionDoublesExtension, []float64{math.Inf(1), 0})
	proto.SetExtension(m, testv1.E_EditionDelimitedExtension, edition(nil))
	return m
}

// withUnknown adds fields of every wire type to a message and to all within it, as a newer schema would.
func withUnknown[M proto.Message](m M) M {
	addUnknown(m.ProtoReflect())
	return m
}

func addUnknown(m protoreflect.Message) {
	b := protowire.AppendTag(nil, 70_000, protowire.VarintType)
	b = protowire.AppendVarint(b, math.MaxUint64)
	b = protowire.AppendTag(b, 69_999, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte("\xff not text"))
	b = protowire.AppendTag(b, 70_001, protowire.StartGroupType)
	b = protowire.AppendTag(b, 1, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, 1)
	b = protowire.AppendTag(b, 70_001, protowire.EndGroupType)
	b = protowire.AppendTag(b, 70_000, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, 1)
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				addUnknown(v.Message())
				return true
			})
		case field.IsMap() || field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				addUnknown(v.List().Get(i).Message())
			}
		default:
			addUnknown(v.Message())
		}
		return true
	})
	m.SetUnknown(b)
}

func nested(depth int) *testv1.Proto3Message {
	m := &testv1.Proto3Message{StringValue: "the innermost"}
	for range depth {
		m = &testv1.Proto3Message{MessageValue: m}
	}
	return m
}

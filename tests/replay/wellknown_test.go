package replay

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

// Those that JSON cannot write are kept and replayed all the same, where the protocol carries them; where it does not, a
// replay is the error that a fresh answer is.
func TestWellKnownTypes(t *testing.T) {
	noKind := new(structpb.Value)
	all := map[string]proto.Message{
		"a Value with no kind":              noKind,
		"a Value of null":                   structpb.NewNullValue(),
		"a Value of an unknown null":        &structpb.Value{Kind: &structpb.Value_NullValue{NullValue: 7}},
		"a Value of an empty text":          structpb.NewStringValue(""),
		"a Value of false":                  structpb.NewBoolValue(false),
		"a Value of an empty list":          structpb.NewListValue(new(structpb.ListValue)),
		"a Value of a nil list":             &structpb.Value{Kind: &structpb.Value_ListValue{}},
		"a Value of an empty struct":        structpb.NewStructValue(new(structpb.Struct)),
		"an empty ListValue":                new(structpb.ListValue),
		"an empty Struct":                   new(structpb.Struct),
		"a Struct with a kindless Value":    &structpb.Struct{Fields: map[string]*structpb.Value{"v": noKind}},
		"a ListValue with a kindless Value": &structpb.ListValue{Values: []*structpb.Value{noKind, structpb.NewNullValue()}},
		"a Struct with odd names": &structpb.Struct{Fields: map[string]*structpb.Value{
			"": structpb.NewNullValue(), "@type": structpb.NewStringValue("x"), "__proto__": structpb.NewBoolValue(true),
		}},
		"nested past what jsonb is given":   nestedList(600),
		"nested within what jsonb is given": nestedList(400),

		"a Timestamp":                  &timestamppb.Timestamp{Seconds: 1_700_000_000, Nanos: 123_456_789},
		"the first Timestamp":          &timestamppb.Timestamp{Seconds: -62_135_596_800},
		"the last Timestamp":           &timestamppb.Timestamp{Seconds: 253_402_300_799, Nanos: 999_999_999},
		"a Timestamp too early":        &timestamppb.Timestamp{Seconds: -62_135_596_801},
		"a Timestamp too late":         &timestamppb.Timestamp{Seconds: 253_402_300_800},
		"a Timestamp far out":          &timestamppb.Timestamp{Seconds: math.MaxInt64, Nanos: math.MinInt32},
		"a Timestamp of negative nano": &timestamppb.Timestamp{Nanos: -1},
		"a Duration":                   &durationpb.Duration{Seconds: -1, Nanos: -5},
		"the longest Duration":         &durationpb.Duration{Seconds: 315_576_000_000, Nanos: 999_999_999},
		"a Duration too long":          &durationpb.Duration{Seconds: 315_576_000_001},
		"a Duration of two signs":      &durationpb.Duration{Seconds: 1, Nanos: -1},

		"a FieldMask":                       &fieldmaskpb.FieldMask{Paths: []string{"a", "b_c.d"}},
		"an empty FieldMask":                new(fieldmaskpb.FieldMask),
		"a FieldMask JSON cannot write":     &fieldmaskpb.FieldMask{Paths: []string{"aB", "a__b", "a_1"}},
		"a FieldMask of no names":           &fieldmaskpb.FieldMask{Paths: []string{"", "a,b", "*", "\x00"}},
		"an Any":                            pack(t, &testv1.Proto3Message{StringValue: "in", OptionalInt64: proto.Int64(0)}),
		"an Any of an Any":                  pack(t, pack(t, new(emptypb.Empty))),
		"an Any of a well-known type":       pack(t, structpb.NewNumberValue(1)),
		"an Any of a kindless Value":        pack(t, noKind),
		"an Any of extensions":              pack(t, withExtensions()),
		"an empty Any":                      new(anypb.Any),
		"an Any without a type":             &anypb.Any{Value: []byte{1}},
		"an Any of a type not linked":       &anypb.Any{TypeUrl: "type.googleapis.com/elsewhere.v1.NotLinked", Value: []byte{8, 1, 0xff}},
		"an Any with another prefix":        &anypb.Any{TypeUrl: "https://types.example/of/google.protobuf.Empty"},
		"an Any that holds no such message": &anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Timestamp", Value: []byte{0xff}},
		"an Any with a reordered message":   &anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Timestamp", Value: []byte{0x10, 2, 0x08, 1, 0x08, 3}},

		"an Empty":        new(emptypb.Empty),
		"a SourceContext": &sourcecontextpb.SourceContext{FileName: "a.proto"},
		"an Api": &apipb.Api{
			Name: "n", Methods: []*apipb.Method{{Name: "m", Options: []*typepb.Option{{Name: "o", Value: pack(t, wrapperspb.Bool(true))}}}},
			Mixins: []*apipb.Mixin{{Name: "x"}}, Syntax: typepb.Syntax_SYNTAX_EDITIONS, Edition: "2023",
		},
		"a Type": &typepb.Type{
			Name: "t", Fields: []*typepb.Field{{Kind: typepb.Field_TYPE_GROUP, Cardinality: 99, Number: 1, JsonName: "j"}}, Oneofs: []string{"o"},
		},
		"an Enum":             &typepb.Enum{Name: "e", Enumvalue: []*typepb.EnumValue{{Name: "v", Number: -1}}},
		"a DoubleValue":       wrapperspb.Double(math.Copysign(0, -1)),
		"a FloatValue":        wrapperspb.Float(float32(math.Inf(-1))),
		"an Int64Value":       wrapperspb.Int64(1<<53 + 1),
		"a UInt64Value":       wrapperspb.UInt64(math.MaxUint64),
		"an Int32Value":       wrapperspb.Int32(math.MinInt32),
		"a UInt32Value":       wrapperspb.UInt32(math.MaxUint32),
		"a BoolValue":         wrapperspb.Bool(true),
		"a StringValue":       wrapperspb.String("a\x00b"),
		"a BytesValue":        wrapperspb.Bytes([]byte{0, 0xff}),
		"an empty BytesValue": wrapperspb.Bytes(nil),
	}
	for name, m := range all {
		if within := within(m); within != nil {
			all[name+", in a field"] = within
		}
	}
	all["null in a field"] = &testv1.WellKnownMessage{NullValue: structpb.NullValue_NULL_VALUE.Enum(), Choice: &testv1.WellKnownMessage_NullChoice{}}
	all["unknown fields in well-known types"] = withUnknown(&testv1.WellKnownMessage{
		Timestamp: new(timestamppb.Timestamp), Value: structpb.NewStringValue("v"), StringValue: wrapperspb.String("s"), Struct: new(structpb.Struct),
	})
	holdsForAll(t, messages(all))
}

// within puts a message into a field of its type, and is nil where there is none.
func within(m proto.Message) proto.Message {
	outer := new(testv1.WellKnownMessage)
	fields := outer.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Message() == m.ProtoReflect().Descriptor() && !f.IsList() {
			outer.ProtoReflect().Set(f, outer.ProtoReflect().NewField(f))
			proto.Merge(outer.ProtoReflect().Mutable(f).Message().Interface(), m)
			return outer
		}
	}
	return nil
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func nestedList(depth int) *structpb.ListValue {
	l := new(structpb.ListValue)
	for range depth {
		l = &structpb.ListValue{Values: []*structpb.Value{structpb.NewListValue(l)}}
	}
	return l
}

package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

// drawer draws messages from their schema.
type drawer struct {
	t *rapid.T
	// odd draws what JSON or jsonb cannot hold, too.
	odd bool
}

// mostFields bounds what is drawn of a message, and mostDepth how deep.
const (
	mostFields = 5
	mostDepth  = 3
)

// fill sets some of a message's fields: those that are required, and any others, extensions among them.
func (d drawer) fill(m protoreflect.Message, depth int) {
	if d.wellKnown(m, depth) {
		return
	}
	var optional []protoreflect.FieldDescriptor
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case f.Cardinality() == protoreflect.Required:
			d.set(m, f, depth)
		case depth < mostDepth || f.Message() == nil:
			optional = append(optional, f)
		}
	}
	for _, x := range extensionsOf(m.Descriptor().FullName()) {
		if depth < mostDepth || x.Message() == nil {
			optional = append(optional, x)
		}
	}
	if len(optional) > 0 {
		chosen := rapid.SliceOfNDistinct(rapid.IntRange(0, len(optional)-1), 0, min(mostFields, len(optional)), rapid.ID).Draw(d.t, "fields")
		for _, i := range chosen {
			d.set(m, optional[i], depth)
		}
	}
	if d.seldom() {
		m.SetUnknown(d.unknown(m.Descriptor()))
	}
}

// extensionsOf are the extensions of a message that are linked in, in the order of their numbers.
func extensionsOf(name protoreflect.FullName) (all []protoreflect.ExtensionTypeDescriptor) {
	protoregistry.GlobalTypes.RangeExtensionsByMessage(name, func(x protoreflect.ExtensionType) bool {
		all = append(all, x.TypeDescriptor())
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.ExtensionTypeDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	return all
}

// seldom is true once in a while.
func (d drawer) seldom() bool { return rapid.IntRange(0, 7).Draw(d.t, "seldom") == 7 }

func (d drawer) set(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	switch {
	case f.IsMap():
		entries := m.Mutable(f).Map()
		for range rapid.IntRange(0, 3).Draw(d.t, "entries") {
			key := d.scalar(f.MapKey()).MapKey()
			if f.MapValue().Message() != nil {
				d.fill(entries.Mutable(key).Message(), depth+1)
			} else {
				entries.Set(key, d.scalar(f.MapValue()))
			}
		}
	case f.IsList():
		list := m.Mutable(f).List()
		for range rapid.IntRange(0, 3).Draw(d.t, "elements") {
			if f.Message() != nil {
				d.fill(list.AppendMutable().Message(), depth+1)
			} else {
				list.Append(d.scalar(f))
			}
		}
	case f.Message() != nil:
		d.fill(m.Mutable(f).Message(), depth+1)
	default:
		m.Set(f, d.scalar(f))
	}
}

func (d drawer) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	name := string(f.Name())
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(d.t, name))
	case protoreflect.EnumKind:
		if f.Enum().FullName() == "google.protobuf.NullValue" {
			return protoreflect.ValueOfEnum(0) // its other numbers are null in JSON, too
		}
		known := rapid.Custom(func(t *rapid.T) int32 {
			return int32(f.Enum().Values().Get(rapid.IntRange(0, f.Enum().Values().Len()-1).Draw(t, "value")).Number())
		})
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.OneOf(known, rapid.Int32()).Draw(d.t, name)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(d.t, name))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(d.t, name))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(d.t, name))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(d.t, name))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(d.number(name)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(d.number(name))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(d.t, name))
	default: // a string: what else has fields of its own
		text := d.text(name)
		if checked, ok := f.(interface{ EnforceUTF8() bool }); d.odd && ok && !checked.EnforceUTF8() && d.seldom() {
			text += "\xff\xed\xa0\x80"
		}
		return protoreflect.ValueOfString(text)
	}
}

func (d drawer) number(name string) float64 {
	return rapid.OneOf(rapid.Float64(), special(numbers), rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) })).Draw(d.t, name)
}

func (d drawer) text(name string) string {
	text := strings.ToValidUTF8(rapid.OneOf(rapid.StringN(-1, -1, 40), special(texts)).Draw(d.t, name), "?")
	if !d.odd {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return text
}

// special draws one of the values that have a name.
func special[V any](values map[string]V) *rapid.Generator[V] {
	return rapid.Map(rapid.SampledFrom(slices.Sorted(maps.Keys(values))), func(name string) V { return values[name] })
}

// unknown draws fields that no schema here has.
func (d drawer) unknown(m protoreflect.MessageDescriptor) (b []byte) {
	for range rapid.IntRange(1, 4).Draw(d.t, "unknown fields") {
		number := protowire.Number(rapid.IntRange(20_000, 1<<29-2).Draw(d.t, "number"))
		if m.Fields().ByNumber(number) != nil {
			continue
		}
		switch rapid.IntRange(0, 4).Draw(d.t, "wire type") {
		case 0:
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), rapid.Uint64().Draw(d.t, "varint"))
		case 1:
			b = protowire.AppendFixed32(protowire.AppendTag(b, number, protowire.Fixed32Type), rapid.Uint32().Draw(d.t, "fixed32"))
		case 2:
			b = protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), rapid.Uint64().Draw(d.t, "fixed64"))
		case 3:
			b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(d.t, "bytes"))
		default:
			b = protowire.AppendTag(b, number, protowire.StartGroupType)
			b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), rapid.Uint64().Draw(d.t, "in a group"))
			b = protowire.AppendTag(b, number, protowire.EndGroupType)
		}
	}
	return b
}

// wellKnown fills those of the well-known types that mean more than their fields say; it reports whether m is one.
func (d drawer) wellKnown(m protoreflect.Message, depth int) bool {
	switch m := m.Interface().(type) {
	case *anypb.Any:
		d.any(m, depth)
	case *timestamppb.Timestamp:
		m.Seconds = rapid.Int64Range(-62_135_596_800, 253_402_300_799).Draw(d.t, "seconds")
		m.Nanos = rapid.Int32Range(0, 999_999_999).Draw(d.t, "nanos")
		if d.odd && d.seldom() {
			m.Seconds, m.Nanos = rapid.Int64().Draw(d.t, "any seconds"), rapid.Int32().Draw(d.t, "any nanos")
		}
	case *durationpb.Duration:
		m.Seconds = rapid.Int64Range(0, 315_576_000_000).Draw(d.t, "seconds")
		m.Nanos = rapid.Int32Range(0, 999_999_999).Draw(d.t, "nanos")
		if rapid.Bool().Draw(d.t, "negative") {
			m.Seconds, m.Nanos = -m.Seconds, -m.Nanos
		}
		if d.odd && d.seldom() {
			m.Seconds, m.Nanos = rapid.Int64().Draw(d.t, "any seconds"), rapid.Int32().Draw(d.t, "any nanos")
		}
	case *fieldmaskpb.FieldMask:
		path := rapid.StringMatching(`[a-z]{1,5}(_[a-z]{1,5}){0,2}(\.[a-z]{1,5})?`)
		if d.odd {
			path = rapid.OneOf(path, rapid.StringN(-1, -1, 10))
		}
		m.Paths = rapid.SliceOfN(path, 0, 3).Draw(d.t, "paths")
		for i := range m.Paths {
			m.Paths[i] = strings.ToValidUTF8(m.Paths[i], "?")
		}
	case *structpb.Value:
		d.value(m, depth)
	default:
		return false
	}
	if d.seldom() {
		m.SetUnknown(d.unknown(m.Descriptor()))
	}
	return true
}

func (d drawer) any(m *anypb.Any, depth int) {
	inner := []proto.Message{new(emptypb.Empty)}
	if depth < mostDepth {
		inner = append(inner, new(testv1.Proto3Message), new(testv1.Proto2Message), new(testv1.WellKnownMessage), new(timestamppb.Timestamp))
	}
	of := inner[rapid.IntRange(0, len(inner)-1).Draw(d.t, "the type within")]
	d.fill(of.ProtoReflect(), depth+1)
	if err := m.MarshalFrom(of); err != nil {
		d.t.Fatal(err)
	}
	if !d.odd || !d.seldom() {
		return
	}
	m.TypeUrl = rapid.SampledFrom([]string{"", "type.googleapis.com/elsewhere.v1.NotLinked", m.GetTypeUrl()}).Draw(d.t, "another type")
	m.Value = rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(d.t, "any bytes")
}

func (d drawer) value(m *structpb.Value, depth int) {
	kinds := 4
	if depth < mostDepth {
		kinds = 6
	}
	switch kind := rapid.IntRange(0, kinds-1).Draw(d.t, "kind"); {
	case d.odd && d.seldom():
		m.Kind = nil
	case kind == 0:
		m.Kind = &structpb.Value_NullValue{}
	case kind == 1:
		m.Kind = &structpb.Value_BoolValue{BoolValue: rapid.Bool().Draw(d.t, "bool")}
	case kind == 2:
		m.Kind = &structpb.Value_StringValue{StringValue: d.text("text")}
	case kind == 3:
		n := d.number("number")
		if !d.odd && (math.IsNaN(n) || math.IsInf(n, 0)) {
			n = 0
		}
		m.Kind = &structpb.Value_NumberValue{NumberValue: n}
	case kind == 4:
		l := new(structpb.ListValue)
		d.fill(l.ProtoReflect(), depth+1)
		m.Kind = &structpb.Value_ListValue{ListValue: l}
	default:
		s := new(structpb.Struct)
		d.fill(s.ProtoReflect(), depth+1)
		m.Kind = &structpb.Value_StructValue{StructValue: s}
	}
}

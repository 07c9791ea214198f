package replay

import (
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// asInJSON is what a message says in JSON, once jsonb has held it: without unknown fields, with zeros that have no sign,
// and with one null alone.
func asInJSON(t tb, m proto.Message) proto.Message {
	t.Helper()
	m = proto.Clone(m)
	leaveOut(t, m.ProtoReflect())
	return m
}

func leaveOut(t tb, m protoreflect.Message) {
	t.Helper()
	m.SetUnknown(nil)
	if packed, ok := m.Interface().(*anypb.Any); ok && packed.GetTypeUrl() != "" {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		leaveOut(t, inner.ProtoReflect())
		if packed.Value, err = (proto.MarshalOptions{Deterministic: true}).Marshal(inner); err != nil {
			t.Fatal(err)
		}
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			values := v.Map()
			values.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					leaveOut(t, v.Message())
				} else {
					values.Set(k, scalarInJSON(field.MapValue(), v))
				}
				return true
			})
		case field.IsList():
			list := v.List()
			for i := range list.Len() {
				if field.Message() != nil {
					leaveOut(t, list.Get(i).Message())
				} else {
					list.Set(i, scalarInJSON(field, list.Get(i)))
				}
			}
		case field.Message() != nil:
			leaveOut(t, v.Message())
		default:
			m.Set(field, scalarInJSON(field, v))
		}
		return true
	})
}

func scalarInJSON(field protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch {
	case field.Kind() == protoreflect.FloatKind && v.Float() == 0:
		return protoreflect.ValueOfFloat32(0)
	case field.Kind() == protoreflect.FloatKind && math.IsNaN(v.Float()):
		return protoreflect.ValueOfFloat32(float32(math.NaN()))
	case field.Kind() == protoreflect.DoubleKind && v.Float() == 0:
		return protoreflect.ValueOfFloat64(0)
	case field.Kind() == protoreflect.DoubleKind && math.IsNaN(v.Float()):
		return protoreflect.ValueOfFloat64(math.NaN())
	case field.Enum() != nil && field.Enum().FullName() == "google.protobuf.NullValue":
		return protoreflect.ValueOfEnum(0)
	default:
		return v
	}
}

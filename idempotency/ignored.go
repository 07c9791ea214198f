package idempotency

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ignoredFields are the paths of request messages that do not count in a fingerprint, by the message's full name.
type ignoredFields map[protoreflect.FullName][]string

// without returns the message with those fields cleared in a copy, and the message itself where it has none.
func (f ignoredFields) without(m proto.Message) (proto.Message, error) {
	paths := f[m.ProtoReflect().Descriptor().FullName()]
	if len(paths) == 0 {
		return m, nil
	}
	m = proto.Clone(m)
	for _, path := range paths {
		if err := clearPath(m.ProtoReflect(), path); err != nil {
			return nil, fmt.Errorf("leave the field %q out of the fingerprint: %w", path, err)
		}
	}
	return m, nil
}

// clearPath clears the field at a path, within each message of a list or map on the way.
func clearPath(m protoreflect.Message, path string) (err error) {
	name, rest, deeper := strings.Cut(path, ".")
	field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case field == nil:
		return fmt.Errorf("%s has no field %q", m.Descriptor().FullName(), name)
	case !deeper:
		m.Clear(field)
		return nil
	case field.IsMap() && field.MapValue().Message() != nil:
		m.Get(field).Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			err = clearPath(v.Message(), rest)
			return err == nil
		})
		return err
	case field.IsMap() || field.Message() == nil:
		return fmt.Errorf("%s is no message", field.FullName())
	case field.IsList():
		for i := range m.Get(field).List().Len() {
			if err := clearPath(m.Get(field).List().Get(i).Message(), rest); err != nil {
				return err
			}
		}
		return nil
	case m.Has(field):
		return clearPath(m.Mutable(field).Message(), rest)
	default:
		return nil
	}
}

package idempotency

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// appendCanonical appends m in a form that servers of different schema versions share: marshalled deterministically, with
// the records of every message in the order of their field numbers. Go alone would write the fields that it knows first
// and those that it does not know behind them, as they came.
func appendCanonical(b []byte, m proto.Message) ([]byte, error) {
	start := len(b)
	// AllowPartial: whether required fields are set is for the handler to judge.
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.MarshalAppend(b, m)
	if err != nil {
		return nil, fmt.Errorf("marshal %s for its fingerprint: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	if err := sortRecords(b[start:], m.ProtoReflect().Descriptor()); err != nil {
		return nil, fmt.Errorf("order the fields of %s for its fingerprint: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return b, nil
}

// record is one field's tag and value within a message's bytes.
type wireRecord struct {
	number     protowire.Number
	start, end int
}

// sortRecords puts the records of a message, and of every known message within it, in the order of their numbers. No
// record grows or shrinks, so that it is done in place.
func sortRecords(b []byte, d protoreflect.MessageDescriptor) error {
	var few [16]wireRecord // enough for most messages, without an allocation
	records, sorted := few[:0], true
	for at := 0; at < len(b); {
		number, kind, tag := protowire.ConsumeTag(b[at:])
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		value := protowire.ConsumeFieldValue(number, kind, b[at+tag:])
		if value < 0 {
			return protowire.ParseError(value)
		}
		if err := sortWithin(b[at+tag:at+tag+value], number, kind, d); err != nil {
			return err
		}
		sorted = sorted && (len(records) == 0 || records[len(records)-1].number <= number)
		records = append(records, wireRecord{number, at, at + tag + value})
		at += tag + value
	}
	if sorted {
		return nil
	}
	before := slices.Clone(b)
	slices.SortStableFunc(records, func(x, y wireRecord) int { return cmp.Compare(x.number, y.number) })
	b = b[:0]
	for _, r := range records {
		b = append(b, before[r.start:r.end]...)
	}
	return nil
}

// sortWithin sorts the message that a field's value is, where the schema says that it is one.
func sortWithin(value []byte, number protowire.Number, kind protowire.Type, d protoreflect.MessageDescriptor) error {
	if kind != protowire.BytesType && kind != protowire.StartGroupType {
		return nil
	}
	field := knownField(d, number)
	if field == nil || field.Message() == nil {
		return nil
	}
	switch {
	case field.Kind() == protoreflect.GroupKind && kind == protowire.StartGroupType:
		content, n := protowire.ConsumeGroup(number, value)
		if n < 0 {
			return protowire.ParseError(n)
		}
		return sortRecords(content, field.Message())
	case field.Kind() == protoreflect.MessageKind && kind == protowire.BytesType:
		content, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return protowire.ParseError(n)
		}
		return sortRecords(content, field.Message())
	}
	return nil
}

// knownField is the field of a message with a number: one of its own, or an extension that is linked in, as a codec reads it.
func knownField(d protoreflect.MessageDescriptor, number protowire.Number) protoreflect.FieldDescriptor {
	if !d.ExtensionRanges().Has(number) {
		return d.Fields().ByNumber(number)
	}
	extension, err := protoregistry.GlobalTypes.FindExtensionByNumber(d.FullName(), number)
	if err != nil {
		return nil
	}
	return extension.TypeDescriptor()
}

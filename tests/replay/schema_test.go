package replay

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

// olderSchema and newerSchema are one service before and after a deploy, which adds fields, a value of the enum and a
// message, and takes one field away.
const olderSchema = `
	name: "rolling/v1/rolling.proto" package: "rolling.v1" syntax: "proto3"
	dependency: "connectidempotency/test/v1/call.proto"
	service { name: "RollingService" method { name: "Call" input_type: ".connectidempotency.test.v1.CallRequest" output_type: ".rolling.v1.Reply" } }
	enum_type { name: "Kind" value { name: "KIND_UNSPECIFIED" number: 0 } value { name: "KIND_ONE" number: 1 } }
	message_type { name: "Part"
		field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
	}
	message_type { name: "Reply"
		field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "gone" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "kind" number: 3 type: TYPE_ENUM type_name: ".rolling.v1.Kind" label: LABEL_OPTIONAL }
		field { name: "parts" number: 4 type: TYPE_MESSAGE type_name: ".rolling.v1.Part" label: LABEL_REPEATED }
	}`

const newerSchema = `
	name: "rolling/v1/rolling.proto" package: "rolling.v1" syntax: "proto3"
	dependency: "connectidempotency/test/v1/call.proto"
	service { name: "RollingService" method { name: "Call" input_type: ".connectidempotency.test.v1.CallRequest" output_type: ".rolling.v1.Reply" } }
	enum_type { name: "Kind" value { name: "KIND_UNSPECIFIED" number: 0 } value { name: "KIND_ONE" number: 1 } value { name: "KIND_TWO" number: 2 } }
	message_type { name: "Part"
		field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "amount" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
	}
	message_type { name: "Reply"
		field { name: "renamed_id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "kind" number: 3 type: TYPE_ENUM type_name: ".rolling.v1.Kind" label: LABEL_OPTIONAL }
		field { name: "parts" number: 4 type: TYPE_MESSAGE type_name: ".rolling.v1.Part" label: LABEL_REPEATED }
		field { name: "note" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "whole" number: 6 type: TYPE_MESSAGE type_name: ".rolling.v1.Part" label: LABEL_OPTIONAL }
	}`

const (
	olderReply = `id: "r" gone: "soon" kind: KIND_ONE parts { id: "a" } parts {}`
	newerReply = `renamed_id: "r" kind: KIND_TWO parts { id: "a" amount: 9007199254740993 } note: "new" whole { amount: 1 }`
)

// schema is a version of the service, in no registry, as two builds of a server would have it.
func schema(t *testing.T, text string) protoreflect.FileDescriptor {
	t.Helper()
	file := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(text), file); err != nil {
		t.Fatal(err)
	}
	built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func reply(t *testing.T, file protoreflect.FileDescriptor, text string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(file.Messages().ByName("Reply"))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// What one server stored, another that does not have all of its fields, or has more, replays as if its own handler had
// answered with those bytes; and a client that knows the fields finds them all.
func TestReplayByAServerOfAnotherSchema(t *testing.T) {
	older, newer := schema(t, olderSchema), schema(t, newerSchema)
	shared := newTable(t)
	for name, c := range map[string]struct {
		writer, reader protoreflect.FileDescriptor
		reply          string
	}{
		"stored by the newer":      {writer: newer, reader: older, reply: newerReply},
		"stored by the older":      {writer: older, reader: newer, reply: olderReply},
		"stored by one like it":    {writer: newer, reader: newer, reply: newerReply},
		"an empty reply, by newer": {writer: newer, reader: older},
	} {
		for _, mode := range modes {
			t.Run(name+", "+mode, func(t *testing.T) {
				writer, reader := newRig(t, shared, mode), newRig(t, shared, mode)
				method := func(f protoreflect.FileDescriptor) protoreflect.MethodDescriptor {
					return f.Services().Get(0).Methods().Get(0)
				}
				const path = "/rolling.v1.RollingService/Call"
				handleAt[dynamicpb.Message](writer, path, method(c.writer))
				handleAt[dynamicpb.Message](reader, path, method(c.reader))

				stored := reply(t, c.writer, c.reply)
				asRead := answer{message: reread(t, stored, method(c.reader).Output())}
				answerName := writer.register(answer{message: stored})
				if name := reader.register(asRead); name != answerName {
					t.Fatalf("the requests differ: %s and %s", name, answerName)
				}
				for _, first := range protocols {
					key := writer.newKey()
					_ = writer.call(t, first, path, answerName, key)
					for _, p := range protocols {
						replay, fresh := reader.call(t, p, path, answerName, key), reader.call(t, p, path, answerName, "")
						if !replay.takeMark() {
							t.Errorf("first over %s, then over %s: no replay: %v", first.name, p.name, replay)
						}
						if d := replay.differs(fresh, asRead.newReply); d != "" {
							t.Errorf("first over %s, then over %s: in the replay and the fresh answer %s", first.name, p.name, d)
						}
						if p.json {
							continue
						}
						seen := stored.New().Interface()
						if err := proto.Unmarshal(replay.payloads[0], seen); err != nil || !proto.Equal(seen, stored) {
							t.Errorf("over %s a client of the writer's schema sees %v (%v), want %v", p.name, seen, err, stored)
						}
					}
					if n := reader.ran(key); n != 0 {
						t.Errorf("the reader's handler ran %d times", n)
					}
				}
			})
		}
	}
}

// reread is what a server makes of a message that another one sent.
func reread(t *testing.T, m proto.Message, as protoreflect.MessageDescriptor) *dynamicpb.Message {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	read := dynamicpb.NewMessage(as)
	if err := proto.Unmarshal(b, read); err != nil {
		t.Fatal(err)
	}
	return read
}

// The same with a type that the reader has linked in.
func TestReplayOfALinkedTypeByItsOlderServer(t *testing.T) {
	file := protodesc.ToFileDescriptorProto(testv1.File_connectidempotency_test_v1_proto3_proto)
	for _, m := range file.GetMessageType() {
		if m.GetName() == "Proto3Message" {
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{
				Name: new("added"), Number: new(int32(500)), JsonName: new("added"),
				Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			})
		}
	}
	built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	stored := dynamicpb.NewMessage(built.Messages().ByName("Proto3Message"))
	if err := prototext.Unmarshal([]byte(`string_value: "known" added: "by the newer" message_value { added: "within" }`), stored); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	read := new(testv1.Proto3Message)
	if err := proto.Unmarshal(b, read); err != nil {
		t.Fatal(err)
	}

	shared := newTable(t)
	writer, reader := newRig(t, shared, "leased"), newRig(t, shared, "transactional")
	const path = "/rolling.v1.RollingService/Linked"
	handleAt[dynamicpb.Message](writer, path, nil)
	handleAt[testv1.Proto3Message](reader, path, nil)
	name, asRead := writer.register(answer{message: stored}), answer{message: read}
	_ = reader.register(asRead)
	_ = writer.call(t, connectJSON, path, name, "k")
	for _, p := range protocols {
		replay, fresh := reader.call(t, p, path, name, "k"), reader.call(t, p, path, name, "")
		if !replay.takeMark() {
			t.Errorf("over %s: no replay: %v", p.name, replay)
		}
		if d := replay.differs(fresh, asRead.newReply); d != "" {
			t.Errorf("over %s: in the replay and the fresh answer %s", p.name, d)
		}
	}
}

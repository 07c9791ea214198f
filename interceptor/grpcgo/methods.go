package grpcgo

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Option configures [UnaryServerInterceptor] and [UnaryClientInterceptor].
type Option func(*methods)

// WithFiles names the schemas of the services. They say which procedures are NO_SIDE_EFFECTS and, on a server, how to read a
// stored reply whose Go type is not linked in. Default, and where nil, protoregistry.GlobalFiles, which has those of
// generated code: only dynamic messages need another. A procedure that is not there is looked for in the file of its
// request's schema.
func WithFiles(files *protoregistry.Files) Option {
	return func(m *methods) {
		if files != nil {
			m.files = files
		}
	}
}

// methods finds the schemas of procedures, and remembers those that it has found.
type methods struct {
	files *protoregistry.Files

	mu    sync.RWMutex
	known map[string]method // by procedure
}

func newMethods(opts []Option) *methods {
	m := &methods{files: protoregistry.GlobalFiles, known: make(map[string]method)}
	for _, opt := range opts {
		opt(m)
	}
	return m
}

type method struct {
	descriptor    protoreflect.MethodDescriptor
	noSideEffects bool
}

// find returns a procedure's schema, nil where it is not known, and whether it is marked NO_SIDE_EFFECTS.
func (m *methods) find(procedure string, req proto.Message) (protoreflect.MethodDescriptor, bool) {
	m.mu.RLock()
	found, ok := m.known[procedure]
	m.mu.RUnlock()
	if ok {
		return found.descriptor, found.noSideEffects
	}
	found.descriptor = m.lookUp(procedure, req)
	if found.descriptor == nil {
		return nil, false
	}
	options, _ := found.descriptor.Options().(*descriptorpb.MethodOptions)
	found.noSideEffects = options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[procedure] = found
	return found.descriptor, found.noSideEffects
}

func (m *methods) lookUp(procedure string, req proto.Message) protoreflect.MethodDescriptor {
	service, name, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
	full := protoreflect.FullName(service).Append(protoreflect.Name(name))
	if d, err := m.files.FindDescriptorByName(full); err == nil {
		found, _ := d.(protoreflect.MethodDescriptor)
		return found
	}
	if req == nil {
		return nil
	}
	// Most schemas have a service and its requests in one file.
	in := req.ProtoReflect().Descriptor().ParentFile().Services().ByName(full.Parent().Name())
	if in == nil || in.FullName() != full.Parent() {
		return nil
	}
	return in.Methods().ByName(full.Name())
}

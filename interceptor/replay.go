package interceptor

import (
	"reflect"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// responseTypes knows the concrete response type of each procedure that has answered, so that outer interceptors get a
// replay in the type that they know.
type responseTypes struct {
	types sync.Map // procedure → reflect.Type of *connect.Response[T]
}

func (t *responseTypes) learn(procedure string, res connect.AnyResponse) {
	if _, known := t.types.Load(procedure); !known {
		t.types.Store(procedure, reflect.TypeOf(res))
	}
}

// replay makes a response of a stored message.
func (t *responseTypes) replay(procedure string, r idempotency.Reply) connect.AnyResponse {
	if r.Message == nil { // of a handler without a schema; on the wire, one empty message is like the other
		r.Message = new(emptypb.Empty)
	}
	res := t.concrete(procedure, r.Message)
	if res == nil {
		// AnyResponse is sealed, but takes any message within a struct.
		res = connect.NewResponse(&message{r.Message})
	}
	put(res.Header(), r.Header)
	put(res.Trailer(), r.Trailer)
	res.Header().Set(idempotency.HeaderReplayed, "true")
	return res
}

type message struct{ proto.Message }

func (t *responseTypes) concrete(procedure string, m proto.Message) connect.AnyResponse {
	known, ok := t.types.Load(procedure)
	if !ok {
		return nil
	}
	response := reflect.New(known.(reflect.Type).Elem())
	field := response.Elem().FieldByName("Msg")
	if !field.IsValid() {
		return nil
	}
	if field.Type() == reflect.TypeFor[*dynamicpb.Message]() {
		m = dynamic(m)
	}
	if field.Type() != reflect.TypeOf(m) {
		return nil
	}
	field.Set(reflect.ValueOf(m))
	res, _ := reflect.TypeAssert[connect.AnyResponse](response)
	return res
}

// dynamic is a message as a handler has it that is written against no generated code.
func dynamic(m proto.Message) *dynamicpb.Message {
	if d, ok := m.(*dynamicpb.Message); ok {
		return d
	}
	d := dynamicpb.NewMessage(m.ProtoReflect().Descriptor())
	proto.Merge(d, m)
	return d
}

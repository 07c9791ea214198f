package interceptor_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
)

// A handler that is written against dynamic messages is guarded as one of generated code is, over each protocol: key and
// ignored fields are found in its request, and outer interceptors get a replay in the type that they know.
func TestHandlerOfDynamicMessages(t *testing.T) {
	method := chargesv1.File_charges_v1_charges_proto.Services().ByName("ChargeService").Methods().ByName("CreateCharge")
	for name, schema := range map[string][]connect.HandlerOption{
		"with its schema": {connect.WithSchema(method)}, "without": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var types []string
			outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					res, err := next(ctx, req)
					types = append(types, fmt.Sprintf("%T", res))
					return res, err
				}
			})
			g := backends["memory"](t).guard(t,
				idempotency.WithKeyField("description"), idempotency.WithIgnoredFields(method.Input().FullName(), "card_token"))
			runs := 0
			create := func(context.Context, *connect.Request[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
				runs++
				m := dynamicpb.NewMessage(method.Output())
				proto.Merge(m, created(fmt.Sprint(runs)).Msg)
				return connect.NewResponse(m), nil
			}
			mux := http.NewServeMux()
			mux.Handle(chargesv1connect.ChargeServiceCreateChargeProcedure, connect.NewUnaryHandler(
				chargesv1connect.ChargeServiceCreateChargeProcedure, create, append(schema,
					connect.WithInterceptors(outer, interceptor.New(g)),
					connect.WithRequestInitializer(func(_ connect.Spec, m any) error {
						*m.(*dynamicpb.Message) = *dynamicpb.NewMessage(method.Input())
						return nil
					}))...))
			s := serve(t, mux)
			for first := range protocols {
				for retry := range protocols {
					key := fmt.Sprintf("%x-%x", first, retry)
					res, err := s.client(t, first).CreateCharge(within(t), charge(key, key))
					fresh := answerOf(t, res, err)
					again := charge("", key)
					again.Msg.CardToken = "another, which does not count"
					res, err = s.client(t, retry).CreateCharge(within(t), again)
					replay := answerOf(t, res, err)
					if fresh.replayed() || !replay.replayed() || !replay.equal(fresh) {
						t.Errorf("first over %s, then over %s:\nreplay %+v\nfirst  %+v", first, retry, replay, fresh)
					}
				}
			}
			if slices.Sort(types); types[0] != types[len(types)-1] {
				t.Errorf("outer interceptors get a %s and a %s, want one type", types[0], types[len(types)-1])
			}
		})
	}
}

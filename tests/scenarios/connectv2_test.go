package scenarios_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectinprocess"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/interceptortest"
)

// overConnectV2 serves with interceptor/connectv2 and calls over one of its protocols.
func overConnectV2(opts ...connecthttp.Option) interceptortest.Serve {
	return func(t *testing.T, g *idempotency.Guard, create interceptortest.Handler) interceptortest.Client {
		t.Helper()
		mux := http.NewServeMux()
		connecthttp.Mount(mux, connectV2Server(g, create))
		url, client := serveHTTP(t, mux)
		return connectV2Client{connect.NewClient(connecthttp.NewTransport(client, url, opts...))}
	}
}

// inProcess serves with interceptor/connectv2 without a network.
func inProcess(_ *testing.T, g *idempotency.Guard, create interceptortest.Handler) interceptortest.Client {
	return connectV2Client{connect.NewClient(connectinprocess.New(connectV2Server(g, create)))}
}

// The procedures as generated code would describe them.
func createSpec() connect.Spec { return connectV2Spec("CreateCharge", connect.StreamTypeUnary) }

func listSpec() connect.Spec {
	s := connectV2Spec("ListCharges", connect.StreamTypeServer)
	s.IdempotencyLevel = connect.IdempotencyNoSideEffects
	return s
}

func connectV2Spec(name string, stream connect.StreamType) connect.Spec {
	service := chargesv1.File_charges_v1_charges_proto.Services().ByName("ChargeService")
	m := service.Methods().ByName(protoreflect.Name(name))
	return connect.Spec{StreamType: stream, Schema: m, Procedure: "/" + string(service.FullName()) + "/" + name}
}

func connectV2Server(g *idempotency.Guard, create interceptortest.Handler) *connect.Server {
	s := connect.NewServer(recoverV2, connectv2.NewServerInterceptor(g))
	s.Register(
		connect.Method{Spec: createSpec(), Handler: func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
			req := new(chargesv1.CreateChargeRequest)
			if err := stream.Receive(req); err != nil {
				return err
			}
			r := create(ctx, req)
			info, _ := connect.CallInfoForServerContext(ctx)
			putV2(info.ResponseHeader(), r.Header)
			putV2(info.ResponseTrailer(), r.Trailer)
			if r.Error == nil {
				return stream.Send(r.Message)
			}
			e := connect.NewError(connect.Code(r.Error.Code), r.Error.Message)
			for _, d := range r.Error.Details {
				e = e.WithDetail(&connect.ErrorDetail{Type: string(d.MessageName()), Value: d.Value})
			}
			return e
		}},
		connect.Method{Spec: listSpec(), Handler: func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			if err := stream.Receive(new(chargesv1.ListChargesRequest)); err != nil {
				return err
			}
			return stream.Send(new(chargesv1.ListChargesResponse))
		}},
	)
	return s
}

// recoverV2 keeps a handler's panic from ending the process where no HTTP server does.
func recoverV2(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = connect.NewError(connect.CodeInternal, "the handler panicked")
			}
		}()
		return next(ctx, spec, stream)
	}
}

func putV2(into *connect.Header, m idempotency.Metadata) {
	for name, values := range m {
		for _, v := range values {
			into.Add(name, v)
		}
	}
}

type connectV2Client struct{ client *connect.Client }

func (c connectV2Client) Create(ctx context.Context, keys []string, req *chargesv1.CreateChargeRequest) interceptortest.Answer {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().SetValues("Idempotency-Key", keys)
	res := new(chargesv1.CreateChargeResponse)
	err := c.client.CallUnary(ctx, createSpec(), req, res)
	a := interceptortest.Answer{Metadata: unionV2(info)}
	if err == nil {
		a.Message = res
		return a
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		a.Error = &idempotency.Error{Code: code.Code_UNKNOWN, Message: err.Error()}
		return a
	}
	a.Error = &idempotency.Error{Code: code.Code(e.Code()), Message: e.Message()}
	for _, d := range e.Details() {
		a.Error.Details = append(a.Error.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: d.Value})
	}
	return a
}

func (c connectV2Client) List(ctx context.Context, keys []string) (n int, err error) {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().SetValues("Idempotency-Key", keys)
	stream, err := c.client.CallServerStream(ctx, listSpec(), new(chargesv1.ListChargesRequest))
	if err != nil {
		return 0, err
	}
	for {
		err := stream.Receive(new(chargesv1.ListChargesResponse))
		if errors.Is(err, io.EOF) {
			return n, stream.Close()
		}
		if err != nil {
			return n, errors.Join(err, stream.Close())
		}
		n++
	}
}

// unionV2 is header and trailer in one. What comes as the only block of a gRPC-Web answer is both, to this client.
func unionV2(info *connect.CallInfo) idempotency.Metadata {
	all := maps.Collect(info.ResponseHeader().All())
	for name, values := range info.ResponseTrailer().All() {
		if !slices.Equal(all[name], values) {
			all[name] = slices.Concat(all[name], values)
		}
	}
	return union(all)
}

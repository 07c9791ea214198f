package scenarios_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/anypb"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/interceptortest"
)

// overConnect serves with interceptor and calls over one of its protocols.
func overConnect(opts ...connect.ClientOption) interceptortest.Serve {
	return func(t *testing.T, g *idempotency.Guard, create interceptortest.Handler) interceptortest.Client {
		t.Helper()
		_, handler := chargesv1connect.NewChargeServiceHandler(connectService{create: create}, connect.WithInterceptors(interceptor.New(g)))
		url, client := serveHTTP(t, handler)
		return connectClient{chargesv1connect.NewChargeServiceClient(client, url, opts...)}
	}
}

// serveHTTP serves HTTP/1.1 and HTTP/2 without TLS. The client speaks HTTP/2.
func serveHTTP(t *testing.T, handler http.Handler) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.ErrorLog = discard() // of handlers that panic
	server.Start()
	t.Cleanup(server.Close)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return server.URL, &http.Client{Transport: transport}
}

type connectService struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	create interceptortest.Handler
}

func (s connectService) CreateCharge(
	ctx context.Context, req *connect.Request[chargesv1.CreateChargeRequest],
) (*connect.Response[chargesv1.CreateChargeResponse], error) {
	r := s.create(ctx, req.Msg)
	if r.Error != nil {
		e := connect.NewError(connect.Code(r.Error.Code), errors.New(r.Error.Message))
		for _, d := range r.Error.Details {
			detail, err := connect.NewErrorDetail(d)
			if err != nil {
				return nil, err
			}
			e.AddDetail(detail)
		}
		put(e.Meta(), r.Header)
		put(e.Meta(), r.Trailer)
		return nil, e
	}
	res := connect.NewResponse(r.Message.(*chargesv1.CreateChargeResponse))
	put(res.Header(), r.Header)
	put(res.Trailer(), r.Trailer)
	return res, nil
}

func (connectService) ListCharges(
	_ context.Context, _ *connect.Request[chargesv1.ListChargesRequest], stream *connect.ServerStream[chargesv1.ListChargesResponse],
) error {
	return stream.Send(new(chargesv1.ListChargesResponse))
}

func put(into http.Header, m idempotency.Metadata) {
	for name, values := range m {
		for _, v := range values {
			into.Add(name, v)
		}
	}
}

type connectClient struct {
	charges chargesv1connect.ChargeServiceClient
}

func (c connectClient) Create(ctx context.Context, keys []string, req *chargesv1.CreateChargeRequest) interceptortest.Answer {
	sent := connect.NewRequest(req)
	sent.Header()["Idempotency-Key"] = keys
	res, err := c.charges.CreateCharge(ctx, sent)
	if err == nil {
		return interceptortest.Answer{Message: res.Msg, Metadata: union(res.Header(), res.Trailer())}
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return interceptortest.Answer{Error: &idempotency.Error{Code: code.Code_UNKNOWN, Message: err.Error()}}
	}
	a := interceptortest.Answer{
		Error:    &idempotency.Error{Code: code.Code(e.Code()), Message: e.Message()},
		Metadata: union(e.Meta()),
	}
	for _, d := range e.Details() {
		a.Error.Details = append(a.Error.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	return a
}

func (c connectClient) List(ctx context.Context, keys []string) (n int, err error) {
	sent := connect.NewRequest(new(chargesv1.ListChargesRequest))
	sent.Header()["Idempotency-Key"] = keys
	stream, err := c.charges.ListCharges(ctx, sent)
	if err != nil {
		return 0, err
	}
	for stream.Receive() {
		n++
	}
	return n, errors.Join(stream.Err(), stream.Close())
}

// union is headers in one, names in lower case.
func union(headers ...map[string][]string) idempotency.Metadata {
	all := make(idempotency.Metadata)
	for _, h := range headers {
		for name, values := range h {
			name = strings.ToLower(name)
			all[name] = append(all[name], values...)
		}
	}
	return all
}

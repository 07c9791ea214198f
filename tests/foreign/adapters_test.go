package foreign_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"connectrpc.com/connect"
	v2 "connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/grpc"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
)

// start starts a server of the operations behind an adapter, and returns its address. It ends with the test.
type start func(t *testing.T, guard *idempotency.Guard, served operations) (address string)

func adapters() map[string]start {
	return map[string]start{"connect": startConnect, "connect v2": startConnectV2, "grpc-go": startGRPC}
}

const procedure = longrunningpb.Operations_WaitOperation_FullMethodName

func startConnect(t *testing.T, guard *idempotency.Guard, served operations) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandlerSimple(procedure, served.WaitOperation, connect.WithInterceptors(interceptor.New(guard))))
	return serveHTTP(t, mux)
}

func startConnectV2(t *testing.T, guard *idempotency.Guard, served operations) string {
	t.Helper()
	service := longrunningpb.File_google_longrunning_operations_proto.Services().ByName("Operations")
	wait := v2.Spec{StreamType: v2.StreamTypeUnary, Schema: service.Methods().ByName("WaitOperation"), Procedure: procedure}
	server := v2.NewServer(connectv2.NewServerInterceptor(guard))
	server.Register(v2.Method{Spec: wait, Handler: func(ctx context.Context, _ v2.Spec, stream v2.ServerStream) error {
		req := new(longrunningpb.WaitOperationRequest)
		if err := stream.Receive(req); err != nil {
			return err
		}
		res, err := served.WaitOperation(ctx, req)
		if err != nil {
			return err
		}
		return stream.Send(res)
	}})
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	return serveHTTP(t, mux)
}

// serveHTTP serves HTTP/2 without TLS.
func serveHTTP(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	web := httptest.NewUnstartedServer(handler)
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	t.Cleanup(web.Close)
	return web.Listener.Addr().String()
}

func startGRPC(t *testing.T, guard *idempotency.Guard, served operations) string {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcgo.UnaryServerInterceptor(guard)))
	longrunningpb.RegisterOperationsServer(server, served)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

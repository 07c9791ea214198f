package scenarios_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/grpcgo"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/interceptortest"
)

const chargeService = "charges.v1.ChargeService"

// overGRPC serves with interceptor/grpcgo and calls with grpc-go's client.
func overGRPC(t *testing.T, g *idempotency.Guard, create interceptortest.Handler) interceptortest.Client {
	t.Helper()
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(recoverGRPC, grpcgo.UnaryServerInterceptor(g)))
	s.RegisterService(grpcService(create), struct{}{})
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return grpcClient{conn}
}

// grpcService is the service as generated code would describe it.
func grpcService(create interceptortest.Handler) *grpc.ServiceDesc {
	unary := func(_ any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		req := new(chargesv1.CreateChargeRequest)
		if err := decode(req); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{FullMethod: "/" + chargeService + "/CreateCharge"}
		return through(ctx, req, info, func(ctx context.Context, _ any) (any, error) { return handleGRPC(ctx, create(ctx, req)) })
	}
	return &grpc.ServiceDesc{
		ServiceName: chargeService,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "CreateCharge", Handler: unary}},
		Streams: []grpc.StreamDesc{{StreamName: "ListCharges", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			if err := s.RecvMsg(new(chargesv1.ListChargesRequest)); err != nil {
				return err
			}
			return s.SendMsg(new(chargesv1.ListChargesResponse))
		}}},
	}
}

// handleGRPC answers as a handler does.
func handleGRPC(ctx context.Context, r idempotency.Reply) (any, error) {
	header, err := raw(r.Header)
	if err != nil {
		return nil, err
	}
	trailer, err := raw(r.Trailer)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, trailer)); err != nil {
		return nil, err
	}
	if r.Error != nil {
		return nil, status.FromProto(&spb.Status{Code: int32(r.Error.Code), Message: r.Error.Message, Details: r.Error.Details}).Err()
	}
	return r.Message, nil
}

// raw is metadata as grpc-go has it, with the bytes themselves in names that end in "-bin".
func raw(m idempotency.Metadata) (metadata.MD, error) {
	md := make(metadata.MD)
	for name, values := range m {
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				decoded, err := base64.RawStdEncoding.DecodeString(v)
				if err != nil {
					return nil, err
				}
				v = string(decoded)
			}
			md.Append(name, v)
		}
	}
	return md, nil
}

// recoverGRPC keeps a handler's panic from ending the process.
func recoverGRPC(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Error(codes.Internal, "the handler panicked")
		}
	}()
	return next(ctx, req)
}

type grpcClient struct{ conn *grpc.ClientConn }

func withKeys(ctx context.Context, keys []string) context.Context {
	md := metadata.MD{"idempotency-key": keys}
	return metadata.NewOutgoingContext(ctx, md)
}

func (c grpcClient) Create(ctx context.Context, keys []string, req *chargesv1.CreateChargeRequest) interceptortest.Answer {
	var header, trailer metadata.MD
	res := new(chargesv1.CreateChargeResponse)
	err := c.conn.Invoke(withKeys(ctx, keys), "/"+chargeService+"/CreateCharge", req, res, grpc.Header(&header), grpc.Trailer(&trailer))
	a := interceptortest.Answer{Metadata: union(encoded(header), encoded(trailer))}
	if err == nil {
		a.Message = res
		return a
	}
	s := status.Convert(err)
	a.Error = &idempotency.Error{Code: code.Code(s.Code()), Message: s.Message(), Details: s.Proto().GetDetails()}
	return a
}

// encoded is metadata as it is on the wire.
func encoded(md metadata.MD) map[string][]string {
	m := make(map[string][]string, len(md))
	for name, values := range md {
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			m[name] = append(m[name], v)
		}
	}
	return m
}

func (c grpcClient) List(ctx context.Context, keys []string) (n int, err error) {
	desc := &grpc.StreamDesc{StreamName: "ListCharges", ServerStreams: true}
	stream, err := c.conn.NewStream(withKeys(ctx, keys), desc, "/"+chargeService+"/ListCharges")
	if err != nil {
		return 0, err
	}
	if err := errors.Join(stream.SendMsg(new(chargesv1.ListChargesRequest)), stream.CloseSend()); err != nil {
		return 0, err
	}
	for {
		switch err := stream.RecvMsg(new(chargesv1.ListChargesResponse)); {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
		n++
	}
}

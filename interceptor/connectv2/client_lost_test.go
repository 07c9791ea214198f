package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
)

// cuts are the ways in which a connection ends under an answer.
var cuts = map[string]func(net.Conn){
	"closed":   func(c net.Conn) { _ = c.Close() },
	"reset":    func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
	"given up": func(net.Conn) { panic(http.ErrAbortHandler) },
}

// A client whose answer is lost, wherever the connection breaks, gets the replay, over each protocol; the handler runs once.
func TestLostAnswerIsReplayed(t *testing.T) {
	const whole = 1 << 20 // more than the answer has
	for how, cut := range cuts {
		for where, after := range map[string]int{"before the answer": -1, "behind the header": 0, "in the message": 4, "at its end": whole} {
			for _, http2 := range []bool{false, true} {
				for protocol, options := range protocols {
					if protocol == inProcess {
						continue // it has no connection
					}
					t.Run(fmt.Sprintf("%s/%s/http2 %v/%s", how, where, http2, protocol), func(t *testing.T) {
						var runs, sent atomic.Int32
						inner := connect.NewServer(connectv2.NewServerInterceptor(backends["memory"](t).guard(t)))
						chargesv1connect.RegisterChargeServiceHandler(inner, service{create: func(context.Context, createRequest) (createResponse, error) {
							return created(fmt.Sprintf("ch_%d of a name that is long enough", runs.Add(1))), nil
						}})
						transport := connecthttp.NewTransport(httpClient(t, http2), cutOnce(t, inner, after, cut), options...)
						c := over(transport, connectv2.NewClientInterceptor(retrier(t)), attempts(&sent))
						ctx, info := connect.NewClientContext(within(t))
						res, err := c.CreateCharge(ctx, request(""))
						if err != nil {
							t.Fatal(err)
						}
						if res.GetCharge().GetId() != "ch_1 of a name that is long enough" || runs.Load() != 1 {
							t.Errorf("%v, after %d runs; want the first run's reply", res, runs.Load())
						}
						// A message of gRPC-Web ends in itself: at its end the answer was whole, and may have come.
						want := int32(2)
						if protocol == "grpc-web" && after == whole {
							want = min(sent.Load(), want)
						}
						if sent.Load() != want || connectv2.Replayed(info) != (want == 2) {
							t.Errorf("replayed = %v, sent %d times; want the second attempt's replay", connectv2.Replayed(info), sent.Load())
						}
					})
				}
			}
		}
	}
}

// A client that finds its key in progress comes back, and gets the first call's answer.
func TestComesBackWhileInProgress(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel() // each waits for as long as the server says
			running, finish := make(chan struct{}), make(chan struct{})
			create := func(context.Context, createRequest) (createResponse, error) {
				close(running)
				<-finish
				return created("ch_1"), nil
			}
			s := guarded(t, backends["memory"](t).guard(t), create)
			first := make(chan answer, 1)
			go func() { first <- s.client(t, protocol).charge(t, "k", "one") }()
			<-running
			var once sync.Once
			told := func(next connect.ClientFunc) connect.ClientFunc {
				return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
					stream, err := next(ctx, spec)
					return endTeller{stream, func() { once.Do(func() { close(finish) }) }}, err
				}
			}
			ctx, info := keyedContext(t, "k")
			res, err := s.retrying(t, protocol, retrier(t), told).CreateCharge(ctx, request("one"))
			if err != nil || !connectv2.Replayed(info) || res.GetCharge().GetId() != "ch_1" {
				t.Errorf("%v, %v; want ch_1's replay", res, err)
			}
			a := <-first
			a.mustBe(t, "ch_1")
		})
	}
}

// endTeller tells when an attempt has its answer.
type endTeller struct {
	connect.ClientStream
	ended func()
}

func (s endTeller) Receive(msg any) error {
	defer s.ended()
	return s.ClientStream.Receive(msg)
}

// An attempt that runs is ended by closing the stream, and then is not sent again.
func TestClientStreamIsClosed(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			running := make(chan struct{}, 10)
			create := func(ctx context.Context, _ createRequest) (createResponse, error) {
				running <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			inner := connect.NewServer()
			chargesv1connect.RegisterChargeServiceHandler(inner, service{create: create})
			stream := openUnary(t, serve(t, inner), protocol)
			if err := errors.Join(stream.SendHeaders(), stream.Send(request("")), stream.CloseSend()); err != nil {
				t.Fatal(err)
			}
			go func() {
				<-running
				if err := stream.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := stream.Receive(created("")); connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("received %v, want canceled", err)
			}
			if len(running) != 0 {
				t.Error("the call was sent again")
			}
		})
	}
}

// openUnary opens a unary call as a stream.
func openUnary(t *testing.T, s server, protocol string) connect.ClientStream {
	t.Helper()
	spec := connect.Spec{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure}
	stream, err := s.retrying(t, protocol, retrier(t)).raw.CallClientStream(within(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A unary call's stream keeps the rules of connect.ClientStream: one message each way, and Receive may begin before Send.
func TestClientStreamKeepsItsRules(t *testing.T) {
	s, seen := watched(t, 1, unavailable)
	stream := openUnary(t, s, "grpc")
	received := make(chan error, 1)
	res := created("")
	go func() { received <- stream.Receive(res) }()
	if err := stream.Send(request("")); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(request("")); err == nil {
		t.Error("a second message was sent")
	}
	if err := errors.Join(stream.CloseSend(), stream.CloseSend(), <-received); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(request("")); !errors.Is(err, io.EOF) {
		t.Errorf("sent after the end: %v, want %v", err, io.EOF)
	}
	if err := stream.Receive(res); !errors.Is(err, io.EOF) {
		t.Errorf("received after the end: %v, want %v", err, io.EOF)
	}
	if err := errors.Join(stream.Close(), stream.Close()); err != nil {
		t.Error(err)
	}
	if res.GetCharge().GetId() != "ch_1" || len(seen.keys) != 2 {
		t.Errorf("received %v after %d attempts", res, len(seen.keys))
	}
	// A call without a message is the server's to judge.
	stream = openUnary(t, s, "grpc")
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Receive(res); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("received %v, want unimplemented", err)
	}
	// A call that is given up before its message.
	stream = openUnary(t, s, "grpc")
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Receive(res); !errors.Is(err, context.Canceled) {
		t.Errorf("received %v, want %v", err, context.Canceled)
	}
}

// What a transport fails with is the call's error as it is, wherever it fails.
func TestTransportFails(t *testing.T) {
	broken := errors.New("a transport of one's own")
	for name, transport := range map[string]failingTransport{
		"opening": {open: broken}, "sending": {send: broken}, "closing the request": {closeSend: broken},
		"receiving": {receive: broken}, "closing": {end: broken},
	} {
		_, err := over(transport, connectv2.NewClientInterceptor(retrier(t))).CreateCharge(within(t), request(""))
		if !errors.Is(err, broken) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want %v", name, err, broken)
		}
	}
}

// failingTransport fails in one of its steps.
type failingTransport struct{ open, send, closeSend, receive, end error }

func (f failingTransport) NewClientStream(context.Context, connect.Spec) (connect.ClientStream, error) {
	return failingStream{f}, f.open
}

type failingStream struct{ f failingTransport }

func (s failingStream) SendHeaders() error { return nil }
func (s failingStream) Send(any) error     { return s.f.send }
func (s failingStream) CloseSend() error   { return s.f.closeSend }
func (s failingStream) Receive(any) error  { return s.f.receive }
func (s failingStream) Close() error       { return s.f.end }

// Where no connect.Client stands before it the call has its key all the same.
func TestWithoutClient(t *testing.T) {
	s, seen := watched(t, 1, unavailable)
	next := s.transport(t, "grpc").NewClientStream
	stream, err := connectv2.NewClientInterceptor(retrier(t))(next)(within(t), connect.Spec{Procedure: chargesv1connect.ChargeServiceCreateChargeProcedure})
	if err != nil {
		t.Fatal(err)
	}
	res := created("")
	if err := errors.Join(stream.Send(request("")), stream.Receive(res), stream.Close()); err != nil {
		t.Fatal(err)
	}
	if res.GetCharge().GetId() != "ch_1" || len(seen.keys) != 2 || seen.keys[0] == "" || seen.keys[0] != seen.keys[1] {
		t.Errorf("received %v, sent with %q; want one key twice", res, seen.keys)
	}
}

package interceptor_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
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
				for protocol := range protocols {
					t.Run(fmt.Sprintf("%s/%s/http2 %v/%s", how, where, http2, protocol), func(t *testing.T) {
						var runs, sent atomic.Int32
						create := func(context.Context, createRequest) (createResponse, error) {
							return created(fmt.Sprintf("ch_%d of a name that is long enough", runs.Add(1))), nil
						}
						_, handler := chargesv1connect.NewChargeServiceHandler(service{create: create},
							connect.WithInterceptors(interceptor.New(backends["memory"](t).guard(t))))
						count := attempts(func(connect.AnyResponse, error) { sent.Add(1) })
						client := chargesv1connect.NewChargeServiceClient(httpClient(t, http2), cutOnce(t, handler, after, cut).URL,
							append(protocols[protocol], connect.WithInterceptors(interceptor.NewClient(retrier(t)), count))...)
						res, err := client.CreateCharge(within(t), charge("", ""))
						if err != nil {
							t.Fatal(err)
						}
						if res.Msg.GetCharge().GetId() != "ch_1 of a name that is long enough" || runs.Load() != 1 {
							t.Errorf("%v, after %d runs; want the first run's reply", res.Msg, runs.Load())
						}
						// A message of gRPC-Web ends in itself: at its end the answer was whole, and may have come.
						want := int32(2)
						if protocol == "grpc-web" && after == whole {
							want = min(sent.Load(), want)
						}
						if sent.Load() != want || interceptor.Replayed(res.Header()) != (want == 2) {
							t.Errorf("replayed = %v, sent %d times; want the second attempt's replay", interceptor.Replayed(res.Header()), sent.Load())
						}
					})
				}
			}
		}
	}
}

// On PostgreSQL too an answer that is lost after the commit leaves one effect, and the retry gets its reply.
func TestLostAnswerAfterTheCommit(t *testing.T) {
	for mode, makeBackend := range databases {
		t.Run(mode, func(t *testing.T) {
			b := makeBackend(t, 4)
			var runs atomic.Int32
			_, handler := chargesv1connect.NewChargeServiceHandler(service{create: charges(b, &runs)},
				connect.WithInterceptors(interceptor.New(b.guard(t))))
			made := 0
			for protocol := range protocols {
				client := cutOnce(t, handler, -1, cuts["reset"]).retrying(t, protocol, retrier(t))
				res, err := client.CreateCharge(within(t), charge("", protocol))
				if err != nil {
					t.Fatalf("%s: %v", protocol, err)
				}
				made++
				if !interceptor.Replayed(res.Header()) || res.Msg.GetCharge().GetId() != fmt.Sprint("ch_", made) || b.effects(t) != made {
					t.Errorf("%s: %v, replayed = %v, %d effects; want ch_%d's replay, and no further effect",
						protocol, res.Msg, interceptor.Replayed(res.Header()), b.effects(t), made)
				}
			}
		})
	}
}

// A client that finds its key in progress comes back, and gets the first call's answer.
func TestComesBackWhileInProgress(t *testing.T) {
	var all sync.WaitGroup
	for protocol := range protocols {
		running, finish := make(chan struct{}), make(chan struct{})
		create := func(context.Context, createRequest) (createResponse, error) {
			close(running)
			<-finish
			return created("ch_1"), nil
		}
		s := guarded(t, backends["memory"](t).guard(t), service{create: create})
		first := s.client(t, protocol)
		all.Go(func() {
			if _, err := first.CreateCharge(within(t), charge("k", "one")); err != nil {
				t.Errorf("%s: %v", protocol, err)
			}
		})
		<-running
		var toldSo sync.Once
		second := s.retrying(t, protocol, retrier(t), attempts(func(_ connect.AnyResponse, err error) {
			toldSo.Do(func() {
				if connect.CodeOf(err) != connect.CodeAborted {
					t.Errorf("%s: the first attempt: %v, want aborted", protocol, err)
				}
				close(finish)
			})
		}))
		all.Go(func() {
			res, err := second.CreateCharge(within(t), charge("k", "one"))
			if err != nil || !interceptor.Replayed(res.Header()) || res.Msg.GetCharge().GetId() != "ch_1" {
				t.Errorf("%s: %v, %v; want ch_1's replay", protocol, res, err)
			}
		})
	}
	all.Wait()
}

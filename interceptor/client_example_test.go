package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// numbered is a handler that counts the charges that it makes.
type numbered struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	made int
}

func (n *numbered) CreateCharge(context.Context, *createChargeRequest) (*createChargeResponse, error) {
	n.made++
	return connect.NewResponse(&chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: fmt.Sprint("ch_", n.made)}}), nil
}

// newLossyServer runs a call, and then loses its answer, once.
func newLossyServer() (*httptest.Server, error) {
	guard, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		return nil, err
	}
	_, handler := chargesv1connect.NewChargeServiceHandler(new(numbered), connect.WithInterceptors(interceptor.New(guard)))
	lost := false
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lost {
			lost = true
			handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // closes the connection
		}
		handler.ServeHTTP(w, r)
	})), nil
}

func newChargesClient(server *httptest.Server) (chargesv1connect.ChargeServiceClient, error) {
	retrier, err := client.New()
	if err != nil {
		return nil, err
	}
	charges := chargesv1connect.NewChargeServiceClient(http.DefaultClient, server.URL,
		connect.WithInterceptors(interceptor.NewClient(retrier)))
	return charges, nil
}

// A client that sends a call again when its answer is lost, and is charged once.
func ExampleNewClient() {
	server, err := newLossyServer()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	charges, err := newChargesClient(server)
	if err != nil {
		fmt.Println(err)
		return
	}

	req := connect.NewRequest(&chargesv1.CreateChargeRequest{Amount: 1299, Currency: "EUR"})
	res, err := charges.CreateCharge(context.Background(), req)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Msg.GetCharge().GetId(), "replayed:", interceptor.Replayed(res.Header()))

	// The same request once more is another call, with a key of its own.
	res, err = charges.CreateCharge(context.Background(), req)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Msg.GetCharge().GetId(), "replayed:", interceptor.Replayed(res.Header()))

	// An order number as the key: for one call.
	ctx := client.WithKey(context.Background(), "order-1")
	res, err = charges.CreateCharge(ctx, req)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Msg.GetCharge().GetId(), "replayed:", interceptor.Replayed(res.Header()))
	_, err = charges.CreateCharge(ctx, req)
	fmt.Println("not sent:", errors.Is(err, client.ErrKeyUsed))
	// Output:
	// ch_1 replayed: true
	// ch_2 replayed: false
	// ch_3 replayed: false
	// not sent: true
}

// A key made and put on a request by hand. Whoever retries sends the same request.
func ExampleSetKey() {
	req := connect.NewRequest(&chargesv1.CreateChargeRequest{Amount: 1299, Currency: "EUR"})
	if err := interceptor.SetKey(req.Header(), client.NewKey()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(req.Header().Get("Idempotency-Key")), "characters")
	// Output:
	// 36 characters
}

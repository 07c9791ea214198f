package connectv2_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/connect-idempotency/connect-idempotency-go/client"
	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2"
	"github.com/connect-idempotency/connect-idempotency-go/interceptor/connectv2/internal/gen/charges/v1/chargesv1connect"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// newMux is a server's wiring: a store, a guard, and its interceptor.
func newMux(svc chargesv1connect.ChargeServiceHandler) (*http.ServeMux, error) {
	guard, err := idempotency.New(memory.New(), idempotency.WithSingleScope())
	if err != nil {
		return nil, err
	}
	server := connect.NewServer(connectv2.NewServerInterceptor(guard))
	chargesv1connect.RegisterChargeServiceHandler(server, svc)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	return mux, nil
}

// counter is a handler. It knows nothing of keys.
type counter struct {
	chargesv1connect.UnimplementedChargeServiceHandler
	charges int
}

func (c *counter) CreateCharge(_ context.Context, req *chargesv1.CreateChargeRequest) (*chargesv1.CreateChargeResponse, error) {
	c.charges++
	charge := &chargesv1.Charge{Id: fmt.Sprint("ch_", c.charges), Amount: req.Amount, Currency: req.Currency}
	return &chargesv1.CreateChargeResponse{Charge: charge}, nil
}

// A server whose retried calls run once.
func Example() {
	mux, err := newMux(new(counter))
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	charges := chargesv1connect.NewChargeServiceClient(connect.NewClient(connecthttp.NewTransport(server.Client(), server.URL)))
	for _, key := range []string{"order-1", "order-1", "order-2"} {
		ctx, info := connect.NewClientContext(context.Background())
		info.RequestHeader().Set(idempotency.DefaultHeader, key)
		res, err := charges.CreateCharge(ctx, &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD"})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %s, replayed: %t\n", key, res.GetCharge().GetId(), connectv2.Replayed(info))
	}
	// Output:
	// order-1: ch_1, replayed: false
	// order-1: ch_1, replayed: true
	// order-2: ch_2, replayed: false
}

// A client whose calls are sent again when their answers are lost, and are charged once.
func ExampleNewClientInterceptor() {
	mux, err := newMux(new(counter))
	if err != nil {
		panic(err)
	}
	lost := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lost { // the first answer
			lost = true
			mux.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // closes the connection
		}
		mux.ServeHTTP(w, r)
	}))
	defer server.Close()

	retrier, err := client.New()
	if err != nil {
		panic(err)
	}
	transport := connecthttp.NewTransport(server.Client(), server.URL)
	charges := chargesv1connect.NewChargeServiceClient(connect.NewClient(transport, connectv2.NewClientInterceptor(retrier)))
	ctx, info := connect.NewClientContext(context.Background())
	for range 2 { // two calls, each with a key of its own
		res, err := charges.CreateCharge(ctx, &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD"})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s, replayed: %t\n", res.GetCharge().GetId(), connectv2.Replayed(info))
	}

	// An order number as the key: for one call.
	ctx = client.WithKey(context.Background(), "order-1")
	res, err := charges.CreateCharge(ctx, &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD"})
	if err != nil {
		panic(err)
	}
	fmt.Println(res.GetCharge().GetId())
	_, err = charges.CreateCharge(ctx, &chargesv1.CreateChargeRequest{Amount: 1299, Currency: "USD"})
	fmt.Println("not sent:", errors.Is(err, client.ErrKeyUsed))
	// Output:
	// ch_1, replayed: true
	// ch_2, replayed: false
	// ch_3
	// not sent: true
}

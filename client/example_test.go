package client_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/client"
)

// What a client interceptor does with a Retrier: each attempt carries the key that the logical call has.
func ExampleRetrier_Do() {
	retrier, err := client.New(client.WithMaxAttempts(3), client.WithBackoff(time.Millisecond, time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	lost := 1 // the first answer is lost on its way
	send := func(_ context.Context, key string) *client.Failure {
		fmt.Println("sent with the key", key)
		if lost > 0 {
			lost--
			return &client.Failure{Code: code.Code_UNAVAILABLE}
		}
		return nil
	}
	ctx := client.WithKey(context.Background(), "order-1") // without it the key is a new one
	charge := client.Call{Procedure: "/charges.v1.ChargeService/CreateCharge"}
	if err := retrier.Do(ctx, charge, send); err != nil {
		fmt.Println(err)
	}
	// The context brought its key to one call.
	fmt.Println(retrier.Do(ctx, charge, send))
	// Output:
	// sent with the key order-1
	// sent with the key order-1
	// idempotency: the call was not sent: the context's key was for one call, and that call has been made; bring the key again for another
}

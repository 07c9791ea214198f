// Package client is the client side: it gives each logical call one idempotency key, and keeps it through the call's
// retries. It knows no transport; a client interceptor (package interceptor for Connect, others for other clients) is a
// thin layer over a [Retrier]:
//
//	retrier, err := client.New()
//	// …
//	c := chargesv1connect.NewChargeServiceClient(http.DefaultClient, url, connect.WithInterceptors(interceptor.NewClient(retrier)))
//
// A logical call is what the caller asks for once; an attempt is one time that it is sent. All attempts of a logical call
// carry the same key, and no two logical calls share one, unless the caller says so.
//
// # Keys
//
// A call's key is, in this order: what the caller put into its metadata; what the caller brought with [WithKey]; a new one
// ([NewKey]). Calls to procedures marked NO_SIDE_EFFECTS and streams pass by: they get no key, and are sent once.
//
// A key that was made is gone with its call. Who wants to go on after the last retry has failed, or after a crash of the
// client, has to know the key: bring one that is stored with the operation, an order number for example.
//
// # Retries
//
// A call with a key is sent again after
//   - Unavailable, which here includes a connection that breaks before the answer is whole (see [Broken]);
//   - Aborted, with the reason [idempotency.ReasonKeyInProgress] or [idempotency.ReasonTxConflict] and the domain
//     [idempotency.Domain] in its google.rpc.ErrorInfo;
//   - ResourceExhausted with a google.rpc.RetryInfo;
//
// and after nothing else; a call without a key never is. The wait before a retry is an exponential backoff with jitter,
// added to what the server asked for, if it did: in google.rpc.RetryInfo, in retry-after (RFC 9110, section 10.2.3), or in
// grpc-retry-pushback-ms (gRPC proposal A6), the longest of them. A pushback that is negative, or no number, ends the call.
// No retry begins past the number of attempts, past the time, or past the caller's deadline: a wait that would end later is
// not begun, and the last attempt's error is returned at once.
//
// Retries are safe because the server's guard remembers the key. Against a server, or for a procedure, that does not,
// a retry after a lost answer runs the call again: see [WithProcedures] and [WithoutRetries].
package client

// Package grpcgo guards the unary procedures of a grpc-go server (google.golang.org/grpc), and gives a client's calls their
// keys ([UnaryClientInterceptor]). A server is guarded by
//
//	guard, err := idempotency.New(store, idempotency.WithScope(tenantOf))
//	// …
//	server := grpc.NewServer(grpc.UnaryInterceptor(grpcgo.UnaryServerInterceptor(guard)))
//
// In a chain (grpc.ChainUnaryInterceptor), interceptors that stand before it are outside: they run for replays and refusals
// too, so authentication, which settles whose a key is, and validation belong there. Those behind it are inside: they run
// with the handler, once, and what they add to an answer is replayed.
//
// Streaming procedures, procedures marked NO_SIDE_EFFECTS, and calls without a key where none is required pass by. Streams
// need nothing of this package: grpc-go has interceptors of their own for them.
//
// When the server stops: first grpc.Server.GracefulStop, then the guard's Close, then the store's pool.
//
// # Header and trailer
//
// What a run sets by grpc.SetHeader, grpc.SendHeader and grpc.SetTrailer is held back until its attempt is settled, goes out
// with the run's own answer and no other, and is replayed. What outer interceptors set is theirs, and is not kept. A run
// cannot take it back, and no more can the replay of a Connect server's run that did: it adds. Within a guarded call
// grpc.SetSendCompressor and grpc.ClientSupportedCompressors find no stream, and return an error: call them in an outer
// interceptor.
//
// # Retries by grpc-go's own policy
//
// A client's retryPolicy retries answers without a header alone. So all metadata of a refusal goes in its trailer:
// retry-after, in seconds, and grpc-retry-pushback-ms, in milliseconds, where the refusal says when to come back. An outer
// interceptor that sets a header takes these retries away from its clients.
//
// # Conflicts
//
// The guard sees that a transaction met a conflict (idempotency.WithConflictRetries) by the database's own error in the chain
// of the handler's. A status that was made of its text has lost it; fmt.Errorf with %w keeps it, beside a status too.
package grpcgo

// Package idempotency makes a retried call run once: it remembers the key that a client sends with a call, and gives a
// retry the first call's answer.
//
// A [Guard] is the one flow that every adapter (package interceptor for Connect, others for other servers, a worker of
// your own) goes through:
//
//	metadata → key → fingerprint → claim → handler → settle → reply
//
// Each step is in the file of its name. What remembers keys is a [store.Store].
//
// # What a call meets
//
// The first call with a key claims it and runs. A later call with the key and the same request is answered from the stored
// reply, without running; with another request it is refused; while the first still runs it is told so. A reply that is
// not an answer (by default all errors but InvalidArgument, NotFound, AlreadyExists, PermissionDenied, FailedPrecondition
// and OutOfRange) is not kept: the key is released, so that a retry runs.
//
// # Refusals
//
// Every refusal is an [*Error] whose details hold a google.rpc.ErrorInfo with the domain [Domain] and one of the Reason
// constants. Two errors have none: a [ScopeFunc]'s own, and the Canceled or DeadlineExceeded of a caller that left before
// its call ran.
package idempotency

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
// # The same request
//
// A call is the same request as another if its procedure is, and its message in a canonical form: codec, order of fields
// and order of map entries make no difference. Servers of different schema versions agree where they got the same bytes
// from the client. Where they cannot, the retry is refused as [ReasonKeyReused], and never wrongly replayed: a list is packed
// in the one schema and not in the other; or a field that one of them does not know is a map, or was written by the client
// otherwise than Go writes it, a zero without presence for example.
//
// What a codec drops before the guard sees the message counts for nothing: Connect's JSON codec drops fields that a server
// does not know, so two requests that differ in such a field alone are the same one to that server.
//
// # Refusals
//
// Every refusal is an [*Error] whose details hold a google.rpc.ErrorInfo with the domain [Domain] and one of the Reason
// constants. Two errors have none: an [*Error] of a [ScopeFunc]'s or a [WithReplayCheck]'s own, and the Canceled or
// DeadlineExceeded of a caller that left before its call ran.
package idempotency

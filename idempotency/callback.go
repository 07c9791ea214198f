package idempotency

import "errors"

// CallbackError is the cause of a refusal for what a function of the server's own returned: a [ScopeFunc], or what
// [WithReplayCheck] set. Adapters hand on Err where it is of their own kind.
type CallbackError struct{ Err error }

func (e *CallbackError) Error() string { return e.Err.Error() }

// Unwrap returns what the function returned.
func (e *CallbackError) Unwrap() error { return e.Err }

// refusedBy is the refusal for such an error: an [*Error] as it is, any other kept from the client.
func refusedBy(err error, what string) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	return misconfigured(&CallbackError{err}, "%s", what)
}

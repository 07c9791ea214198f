package idempotency

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the google.rpc.ErrorInfo domain of every refusal, so that a refusal of another server that a handler hands on
// is not taken for this one's.
const Domain = "github.com/connect-idempotency/connect-idempotency-go"

// Reasons in the google.rpc.ErrorInfo of a refusal.
const (
	// ReasonKeyReused (FailedPrecondition): the key was used with another request.
	ReasonKeyReused = "IDEMPOTENCY_KEY_REUSED"
	// ReasonKeyInProgress (Aborted, with RetryInfo and retry-after): the key's first call still runs.
	ReasonKeyInProgress = "IDEMPOTENCY_KEY_IN_PROGRESS"
	// ReasonTxConflict (Aborted, with RetryInfo): the handler's transaction met a conflict; nothing was done.
	ReasonTxConflict = "IDEMPOTENCY_TX_CONFLICT"
	// ReasonTxRejected (Internal): the handler's transaction could not be committed as the handler left it; nothing was
	// done through it. A retry runs.
	ReasonTxRejected = "IDEMPOTENCY_TX_REJECTED"
	// ReasonKeyRequired (InvalidArgument): the procedure needs a key and none was sent.
	ReasonKeyRequired = "IDEMPOTENCY_KEY_REQUIRED"
	// ReasonKeyInvalid (InvalidArgument): the key is malformed, too long, was sent twice, is another one in the request's
	// field ([WithKeyField]), or breaks the server's own rule ([WithKeyValidator]).
	ReasonKeyInvalid = "IDEMPOTENCY_KEY_INVALID"
	// ReasonReplyNotKept (FailedPrecondition): the call ran, and its reply could not be kept. It never runs again.
	ReasonReplyNotKept = "IDEMPOTENCY_REPLY_NOT_KEPT"
	// ReasonOutcomeUnknown (FailedPrecondition): the key's owner died and take-over is off. It lasts until
	// [Guard.Forget], or until the key's TTL is over.
	ReasonOutcomeUnknown = "IDEMPOTENCY_OUTCOME_UNKNOWN"
	// ReasonReplyUnreadable (Internal): the stored reply does not parse, or does not open ([WithEncryption]). The call does
	// not run.
	ReasonReplyUnreadable = "IDEMPOTENCY_REPLY_UNREADABLE"
	// ReasonReplyUnencodable (Internal): the handler's reply could not be marshalled, and its transaction was undone. A
	// retry runs.
	ReasonReplyUnencodable = "IDEMPOTENCY_REPLY_UNENCODABLE"
	// ReasonStoreUnavailable (Unavailable, with RetryInfo): the store failed. The call has not run, or its transaction is
	// undone, or a retry replays it.
	ReasonStoreUnavailable = "IDEMPOTENCY_STORE_UNAVAILABLE"
	// ReasonMisconfigured (Internal): the server's own policy, scope, replay check or request type cannot be used. The call
	// did not run.
	ReasonMisconfigured = "IDEMPOTENCY_MISCONFIGURED"
)

// Error is an error as a client sees it: a handler's, or a refusal of the guard's own.
type Error struct {
	// Code is the code that the client sees. Never OK.
	Code code.Code
	// Message is the text that the client sees.
	Message string
	// Details are the error's details, bytes untouched.
	Details []*anypb.Any
	// Metadata is the error's own, which Connect keeps apart from header and trailer.
	Metadata Metadata
	// Cause is what the error was made from. It is never sent, and nil in a replayed error.
	Cause error
}

// Error returns code and message, and the cause where there is one: for logs, not for clients.
func (e *Error) Error() string {
	text := e.Code.String() + ": " + e.Message
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ReasonOf returns the Reason constant of a refusal anywhere in err's chain, and "" where there is none of [Domain].
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		for _, d := range e.Details {
			info := new(errdetails.ErrorInfo)
			if d.MessageIs(info) && d.UnmarshalTo(info) == nil && info.Domain == Domain {
				return info.Reason
			}
		}
	}
	return ""
}

// RetryDelay returns what the google.rpc.RetryInfo of an [*Error] anywhere in err's chain says, the longest where there are
// several, never less than zero; and false where there is none.
func RetryDelay(err error) (delay time.Duration, ok bool) {
	if e, is := errors.AsType[*Error](err); is {
		for _, d := range e.Details {
			info := new(errdetails.RetryInfo)
			if d.MessageIs(info) && d.UnmarshalTo(info) == nil {
				delay, ok = max(delay, info.GetRetryDelay().AsDuration()), true
			}
		}
	}
	return delay, ok
}

// refusal makes an error of the guard's own.
func refusal(c code.Code, reason string, cause error, format string, args ...any) *Error {
	e := &Error{Code: c, Message: "idempotency: " + fmt.Sprintf(format, args...), Cause: cause}
	e.addDetail(&errdetails.ErrorInfo{Reason: reason, Domain: Domain})
	return e
}

// retryIn tells the client to come back after delay, in the two places where clients look.
func (e *Error) retryIn(delay time.Duration) *Error {
	delay = max(delay, 0)
	e.addDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	// Whole seconds, rounded down: never past the lease that delay was cut to.
	e.Metadata = Metadata{"retry-after": {strconv.Itoa(int(delay / time.Second))}}
	return e
}

func (e *Error) addDetail(m proto.Message) {
	d, err := anypb.New(m)
	if err != nil {
		// Both details are made of valid UTF-8 and valid durations, so this is a fault of this package.
		panic(fmt.Sprintf("idempotency: marshal %T: %v", m, err))
	}
	e.Details = append(e.Details, d)
}

// retryDelay is when a client is told to come back where nothing says how long it takes.
const retryDelay = time.Second

func storeUnavailable(cause error) *Error {
	return refusal(code.Code_UNAVAILABLE, ReasonStoreUnavailable, cause,
		"the key's store cannot be reached; retry with the same key").retryIn(retryDelay)
}

func misconfigured(cause error, format string, args ...any) *Error {
	return refusal(code.Code_INTERNAL, ReasonMisconfigured, cause, format, args...)
}

package idempotency

import (
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
)

// Reply is what the client sees of a call: a message or an error, with header and trailer.
//
// An adapter makes one from what a handler returned, and the other way round for a replay.
type Reply struct {
	// Message is the reply of a call that succeeded. It may be nil for a worker that has nothing to say: a
	// call with a [Call.Method] gets an empty message of that method's then, when it is replayed.
	Message proto.Message
	// Error is the reply of a call that failed; then Message does not count.
	Error *Error
	// Unencodable, where set, says why Message could not be made of what the handler returned. Such a reply is not kept.
	Unencodable error
	// Header and Trailer are what the handler put into the answer's own, which may hold what outer interceptors put there.
	Header, Trailer Metadata
	// ReplacedHeader and ReplacedTrailer are the names, in lower case, under which the handler's values (or none) stand in
	// the place of what was there; under all others they are added to it. [Changed] finds them.
	ReplacedHeader, ReplacedTrailer []string
}

// Code returns the code that the client sees: OK where, and only where, there is no error.
func (r Reply) Code() code.Code {
	switch {
	case r.Error == nil:
		return code.Code_OK
	case r.Error.Code == code.Code_OK:
		return code.Code_UNKNOWN // an error is no success, whatever its code says
	default:
		return r.Error.Code
	}
}

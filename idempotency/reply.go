package idempotency

import (
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
)

// Reply is what the client sees of a call: a message or an error, with header and trailer.
//
// An adapter makes one from what a handler returned, and the other way round for a replay.
type Reply struct {
	// Message is the reply of a call that succeeded. It may be nil for a worker that has nothing to say.
	Message proto.Message
	// Error is the reply of a call that failed; then Message does not count.
	Error *Error
	// Unencodable, where set, says why Message could not be made of what the handler returned. Such a reply is not kept.
	Unencodable error
	// Header and Trailer are what the handler added to the answer's own.
	Header, Trailer Metadata
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

// Metadata is names with their values, as Connect and gRPC send beside a message. Names are in lower case, in a replay
// whatever the handler wrote. Values of a name that ends in "-bin" are in base64, as on the wire.
//
// Never kept, and so never replayed, whatever the handler set: credentials (set-cookie, set-cookie2, authorization,
// authentication-info, www-authenticate, proxy-authenticate, proxy-authorization, proxy-authentication-info), hop-by-hop
// headers, those that "connection" names among them (RFC 9110, section 7.6.1), the protocols' own (accept-encoding,
// accept-post, content-encoding, content-length, content-type, date, host, user-agent, and all that begin with "grpc-" or
// "connect-"), and [HeaderReplayed].
type Metadata map[string][]string

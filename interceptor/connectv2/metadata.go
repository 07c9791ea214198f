package connectv2

import (
	"maps"
	"net/textproto"
	"slices"

	"connectrpc.com/connect/v2"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// AllowedHeaders names the request headers that a browser's page must be allowed to send (Access-Control-Allow-Headers),
// beside Connect's own, which package connectrpc.com/cors has.
func AllowedHeaders(g *idempotency.Guard) []string {
	return []string{textproto.CanonicalMIMEHeaderKey(g.Header())}
}

// ExposedHeaders names the response headers that a browser's page must be allowed to read (Access-Control-Expose-Headers),
// beside Connect's own, which package connectrpc.com/cors has.
func ExposedHeaders() []string { return []string{"Idempotency-Replayed", "Retry-After"} }

// runMetadata remembers what stood in the call's response metadata before the run: what outer interceptors put there is
// not the run's, and is not kept.
type runMetadata struct {
	info            *connect.CallInfo
	header, trailer map[string][]string
}

func startMetadata(info *connect.CallInfo) runMetadata {
	return runMetadata{info: info, header: clone(info.ResponseHeader()), trailer: clone(info.ResponseTrailer())}
}

// restore sets the call's response metadata back to what it was.
func (m runMetadata) restore() {
	setBack(m.info.ResponseHeader(), m.header)
	setBack(m.info.ResponseTrailer(), m.trailer)
}

// ofError is where the metadata of an error goes. Connect v2 has none apart from header and trailer; v1 sends it in these.
func (m runMetadata) ofError() *connect.Header {
	switch m.info.Protocol {
	case connect.ProtocolNameGRPC, connect.ProtocolNameGRPCWeb:
		return m.info.ResponseTrailer()
	default:
		return m.info.ResponseHeader()
	}
}

func clone(h *connect.Header) map[string][]string {
	if h.Len() == 0 {
		return nil
	}
	m := make(map[string][]string, h.Len())
	for name, values := range h.All() {
		m[name] = slices.Clone(values)
	}
	return m
}

func setBack(h *connect.Header, before map[string][]string) {
	for name := range h.All() {
		h.Delete(name)
	}
	for name, values := range before {
		h.SetValues(name, slices.Clone(values))
	}
}

// change is what became of before in h. Values are taken as they are: those of names that end in "-bin" are in base64 here
// too.
func change(before map[string][]string, h *connect.Header) (put idempotency.Metadata, replaced []string) {
	if h.Len() == 0 && len(before) == 0 {
		return nil, nil
	}
	return idempotency.Changed(before, maps.Collect(h.All()))
}

// replay writes a stored reply's metadata into the call's.
func (m runMetadata) replay(r idempotency.Reply) {
	for _, name := range r.ReplacedHeader {
		m.info.ResponseHeader().Delete(name)
	}
	for _, name := range r.ReplacedTrailer {
		m.info.ResponseTrailer().Delete(name)
	}
	put(m.info.ResponseHeader(), r.Header)
	put(m.info.ResponseTrailer(), r.Trailer)
}

// put adds metadata to a header.
func put(into *connect.Header, m idempotency.Metadata) {
	for name, values := range m {
		into.SetValues(name, slices.Concat(into.Values(name), values))
	}
}

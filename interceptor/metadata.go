package interceptor

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// AllowedHeaders names the request headers that a browser's page must be allowed to send (Access-Control-Allow-Headers),
// beside Connect's own, which package connectrpc.com/cors has.
func AllowedHeaders(g *idempotency.Guard) []string {
	return []string{http.CanonicalHeaderKey(g.Header())}
}

// ExposedHeaders names the response headers that a browser's page must be allowed to read (Access-Control-Expose-Headers),
// beside Connect's own, which package connectrpc.com/cors has.
func ExposedHeaders() []string { return []string{"Idempotency-Replayed", "Retry-After"} }

// runMetadata remembers what stood in the call's response metadata before the run: what outer interceptors put there is
// not the run's, and is not kept.
type runMetadata struct{ header, trailer http.Header }

func startMetadata(ctx context.Context) runMetadata {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return runMetadata{}
	}
	return runMetadata{header: clone(info.ResponseHeader()), trailer: clone(info.ResponseTrailer())}
}

// clone is a header's copy, and nil where it is empty, as it mostly is.
func clone(h http.Header) http.Header {
	if len(h) == 0 {
		return nil
	}
	return h.Clone()
}

// restore sets the call's response metadata back to what it was.
func (m runMetadata) restore(ctx context.Context) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return
	}
	setBack(info.ResponseHeader(), m.header)
	setBack(info.ResponseTrailer(), m.trailer)
}

func setBack(header, before http.Header) {
	clear(header)
	maps.Copy(header, before.Clone())
}

// of is a reply with what the run put into the call's response metadata.
func (m runMetadata) of(ctx context.Context) (r idempotency.Reply) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return r
	}
	r.Header, r.ReplacedHeader = idempotency.Changed(m.header, info.ResponseHeader())
	r.Trailer, r.ReplacedTrailer = idempotency.Changed(m.trailer, info.ResponseTrailer())
	return r
}

// replace takes away, for a replay, what the run had put something else in the place of.
func replace(ctx context.Context, r idempotency.Reply) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return
	}
	for _, name := range r.ReplacedHeader {
		info.ResponseHeader().Del(name)
	}
	for _, name := range r.ReplacedTrailer {
		info.ResponseTrailer().Del(name)
	}
}

// addTo adds header to what the simple API collected in m, in the order in which connect sends both.
func addTo(m idempotency.Metadata, header http.Header) idempotency.Metadata {
	if len(header) > 0 && m == nil {
		m = make(idempotency.Metadata, len(header))
	}
	for name, values := range header {
		name = strings.ToLower(name)
		m[name] = append(m[name], values...)
	}
	return m
}

// put writes metadata into a header.
func put(into http.Header, m idempotency.Metadata) {
	for name, values := range m {
		name = http.CanonicalHeaderKey(name)
		into[name] = append(into[name], values...)
	}
}

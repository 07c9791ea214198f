package idempotency

import (
	"maps"
	"slices"
	"strings"

	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
)

// Metadata is names with their values, as Connect and gRPC send beside a message. Names are in lower case, in a replay
// whatever the handler wrote. Values of a name that ends in "-bin" are in base64, as on the wire.
//
// Never kept, and so never replayed, whatever the handler set: credentials (set-cookie, set-cookie2, authorization,
// authentication-info, www-authenticate, proxy-authenticate, proxy-authorization, proxy-authentication-info), hop-by-hop
// headers, those that "connection" names among them (RFC 9110, section 7.6.1), the protocols' own (accept-encoding,
// accept-post, content-encoding, content-length, content-type, date, host, user-agent, and all that begin with "grpc-" or
// "connect-"), and [HeaderReplayed].
type Metadata map[string][]string

// Changed tells what a run made of metadata, from how it was before and after it: what it put there, and under which names
// that stands in the place of what was there. A name that it took away is replaced by nothing. Where after begins with the
// values of before, in order, the rest was added. Names that differ in case alone count as different ones, as in the maps.
//
// It is for adapters, which get header and trailer as a server's API has them, and neither keeps nor changes the maps.
func Changed(before, after map[string][]string) (put Metadata, replaced []string) {
	for name, values := range after {
		old := before[name]
		added := len(old) <= len(values) && slices.Equal(old, values[:len(old)])
		if added {
			values = values[len(old):]
		} else {
			replaced = append(replaced, strings.ToLower(name))
		}
		if len(values) == 0 {
			continue
		}
		if put == nil {
			put = make(Metadata, len(after))
		}
		name = strings.ToLower(name)
		put[name] = append(put[name], values...)
	}
	for name, old := range before {
		if _, still := after[name]; !still && len(old) > 0 {
			replaced = append(replaced, strings.ToLower(name))
		}
	}
	return put, replaced
}

// storedMetadata takes what is kept of metadata, in the order of names, so that equal replies have equal bytes.
func (g *Guard) storedMetadata(m Metadata, replaced []string) []*idempotencyv1.Metadata {
	names := slices.AppendSeq(make([]string, 0, len(m)+len(replaced)), maps.Keys(m))
	for _, name := range replaced {
		if _, put := m[name]; !put {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	hop := hopByHop(m)
	kept := make([]*idempotencyv1.Metadata, 0, len(names))
	for _, given := range names {
		name := strings.ToLower(given)
		if g.unkept[name] || slices.Contains(hop, name) || strings.HasPrefix(name, "grpc-") || strings.HasPrefix(name, "connect-") {
			continue
		}
		values := make([][]byte, len(m[given]))
		for i, v := range m[given] {
			values[i] = []byte(v)
		}
		kept = append(kept, &idempotencyv1.Metadata{Name: name, Values: values, Replaces: slices.Contains(replaced, name)})
	}
	return kept
}

// hopByHop returns the names that m's "connection" says are for the next hop alone: RFC 9110, section 7.6.1.
func hopByHop(m Metadata) (names []string) {
	for given, values := range m {
		if !strings.EqualFold(given, "connection") {
			continue
		}
		for name := range strings.SplitSeq(strings.ToLower(strings.Join(values, ",")), ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// neverKept names the metadata that belongs to one answer on one connection, or to one client's session.
func neverKept() map[string]bool {
	names := []string{
		// Credentials: what was right for the first caller need not be for the next.
		"set-cookie", "set-cookie2", "authorization", "authentication-info", "www-authenticate",
		"proxy-authenticate", "proxy-authorization", "proxy-authentication-info",
		// Hop-by-hop: RFC 9110, section 7.6.1.
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		// The protocols' own, beside all that begin with grpc- and connect-.
		"accept-encoding", "accept-post", "content-encoding", "content-length", "content-type", "date", "host", "user-agent",
		// The guard's own.
		HeaderReplayed,
	}
	unkept := make(map[string]bool, len(names))
	for _, name := range names {
		unkept[name] = true
	}
	return unkept
}

// metadata makes metadata of what was stored.
func metadata(stored []*idempotencyv1.Metadata) (m Metadata, replaced []string) {
	if len(stored) == 0 {
		return nil, nil
	}
	m = make(Metadata, len(stored))
	for _, s := range stored {
		for _, v := range s.Values {
			m[s.Name] = append(m[s.Name], string(v))
		}
		if s.Replaces {
			replaced = append(replaced, s.Name)
		}
	}
	return m, replaced
}

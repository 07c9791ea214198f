package idempotency

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// errTooLarge says that a reply is not kept because of its size.
var errTooLarge = errors.New("idempotency: the reply is too large to be kept")

// record makes what is stored of a reply. A reply that is too large, or that cannot be encoded, makes a record without it,
// and the error says why.
func (g *Guard) record(k *keyed, r Reply) (store.Record, error) {
	notKept := store.Record{State: store.NotKept, Code: r.Code()}
	if size := replySize(r); size > g.maxReply {
		return notKept, fmt.Errorf("%w: %d bytes, and at most %d are", errTooLarge, size, g.maxReply)
	}
	encoded, err := g.encode(k, r)
	if err != nil {
		return notKept, err
	}
	record := store.Record{State: store.Completed, Code: r.Code(), Reply: encoded, Readable: readable(r)}
	if g.sealer != nil {
		return g.sealer.seal(k, record)
	}
	return record, nil
}

func replySize(r Reply) int {
	if r.Error != nil {
		return proto.Size(storedError(r.Error))
	}
	return proto.Size(r.Message)
}

// encode writes a reply's exact form.
func (g *Guard) encode(k *keyed, r Reply) ([]byte, error) {
	stored := &idempotencyv1.StoredReply{Header: g.storedMetadata(r.Header), Trailer: g.storedMetadata(r.Trailer)}
	switch {
	case r.Unencodable != nil:
		return nil, fmt.Errorf("idempotency: %w", r.Unencodable)
	case r.Error != nil:
		e := storedError(r.Error)
		e.Code = int32(r.Code())
		e.Metadata = g.storedMetadata(r.Error.Metadata)
		stored.Result = &idempotencyv1.StoredReply_Error{Error: e}
	case r.Message != nil:
		name := r.Message.ProtoReflect().Descriptor().FullName()
		if _, err := messageType(name, k.Method); err != nil { // or no retry could read it
			return nil, fmt.Errorf("idempotency: %w", err)
		}
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.Message)
		if err != nil {
			return nil, fmt.Errorf("idempotency: marshal the reply: %w", err)
		}
		stored.Result = &idempotencyv1.StoredReply_Message{Message: &idempotencyv1.Message{
			TypeName: string(name),
			Value:    value,
		}}
	default:
		// No type: there is no message, which is not the same as a record that lost it.
		stored.Result = &idempotencyv1.StoredReply_Message{Message: new(idempotencyv1.Message)}
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("idempotency: marshal the stored reply: %w", err)
	}
	return encoded, nil
}

func storedError(e *Error) *idempotencyv1.Error {
	return &idempotencyv1.Error{Code: int32(e.Code), Message: []byte(e.Message), Details: e.Details}
}

// storedMetadata takes what is kept of metadata, in the order of names, so that equal replies have equal bytes.
func (g *Guard) storedMetadata(m Metadata) []*idempotencyv1.Metadata {
	if len(m) == 0 {
		return nil
	}
	hop := hopByHop(m)
	kept := make([]*idempotencyv1.Metadata, 0, len(m))
	for _, given := range slices.Sorted(maps.Keys(m)) {
		name := strings.ToLower(given)
		if g.unkept[name] || slices.Contains(hop, name) || strings.HasPrefix(name, "grpc-") || strings.HasPrefix(name, "connect-") {
			continue
		}
		values := make([][]byte, len(m[given]))
		for i, v := range m[given] {
			values[i] = []byte(v)
		}
		kept = append(kept, &idempotencyv1.Metadata{Name: name, Values: values})
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

// readable is the reply as JSON, made only where a store asks for it.
func readable(r Reply) json.Marshaler {
	switch {
	case r.Error != nil:
		return errorJSON{r.Error}
	case r.Message != nil:
		return messageJSON{r.Message}
	default:
		return nil
	}
}

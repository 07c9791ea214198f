package idempotency

import (
	"encoding/json"
	"errors"
	"fmt"

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
	stored := &idempotencyv1.StoredReply{
		Header:  g.storedMetadata(r.Header, r.ReplacedHeader),
		Trailer: g.storedMetadata(r.Trailer, r.ReplacedTrailer),
	}
	switch {
	case r.Unencodable != nil:
		return nil, fmt.Errorf("idempotency: %w", r.Unencodable)
	case r.Error != nil:
		e := storedError(r.Error)
		e.Code = int32(r.Code())
		e.Metadata = g.storedMetadata(r.Error.Metadata, nil)
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

package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// HeaderReplayed is the metadata, with the value "true", that an adapter adds to a replay.
const HeaderReplayed = "idempotency-replayed"

// replay answers from a stored reply.
func (g *Guard) replay(ctx context.Context, k *keyed) (Reply, bool, error) {
	r, err := g.open(&k.found, k.Method)
	if err != nil {
		g.logger.LogAttrs(ctx, slog.LevelError, "idempotency: a stored reply does not open; the call is refused",
			slog.String("procedure", k.Procedure), slog.String("key_digest", k.digest()), slog.Any("error", err))
		return g.refuse(ctx, k, Failed, refusal(code.Code_INTERNAL, ReasonReplyUnreadable, err,
			"this call has run, and its stored reply cannot be read; it will not run again"))
	}
	if g.mayReplay != nil {
		if err := g.mayReplay(ctx, k.Call, r); err != nil {
			return g.refuse(ctx, k, Failed, refusedBy(err, "whether the stored reply may be given to this caller could not be told"))
		}
	}
	g.observe(ctx, k, Event{Outcome: Replayed})
	return r, true, nil
}

// open reads a reply's exact form, and decrypts it first where it was stored so.
func (g *Guard) open(found *store.Found, method protoreflect.MethodDescriptor) (Reply, error) {
	stored, err := unmarshalReply(found.Record.Reply)
	if err != nil {
		return Reply{}, err
	}
	sealed := stored.GetSealed()
	switch {
	case sealed != nil && g.sealer == nil:
		return Reply{}, fmt.Errorf("the stored reply is encrypted with the key %q, and this server has none", sealed.KeyId)
	case sealed != nil:
		if stored, err = g.sealer.open(found, sealed); err != nil {
			return Reply{}, err
		}
	case g.sealer != nil && !g.acceptClear:
		return Reply{}, errors.New("the stored reply is not encrypted, and this server accepts none that is not")
	}
	r, err := decode(stored, method)
	if err == nil && r.Code() != found.Record.Code {
		err = fmt.Errorf("the row says %v, and the stored reply %v", found.Record.Code, r.Code())
	}
	return r, err
}

func unmarshalReply(encoded []byte) (*idempotencyv1.StoredReply, error) {
	stored := new(idempotencyv1.StoredReply)
	if err := proto.Unmarshal(encoded, stored); err != nil {
		return nil, fmt.Errorf("unmarshal the stored reply: %w", err)
	}
	return stored, nil
}

// decode makes a reply of what was stored.
func decode(stored *idempotencyv1.StoredReply, method protoreflect.MethodDescriptor) (Reply, error) {
	var r Reply
	r.Header, r.ReplacedHeader = metadata(stored.Header)
	r.Trailer, r.ReplacedTrailer = metadata(stored.Trailer)
	switch result := stored.Result.(type) {
	case *idempotencyv1.StoredReply_Error:
		if result.Error.GetCode() == int32(code.Code_OK) {
			return Reply{}, errors.New("the stored error has the code OK")
		}
		r.Error = &Error{
			Code:    code.Code(result.Error.Code),
			Message: string(result.Error.Message),
			Details: result.Error.Details,
		}
		r.Error.Metadata, _ = metadata(result.Error.Metadata) // which nobody writes to before the handler
	case *idempotencyv1.StoredReply_Message:
		name := protoreflect.FullName(result.Message.GetTypeName())
		if name == "" && len(result.Message.GetValue()) == 0 { // a worker stored it, who had nothing to say
			if method == nil {
				break
			}
			name = method.Output().FullName() // to a server's clients that is an empty message
		}
		messageType, err := messageType(name, method)
		if err != nil {
			return Reply{}, err
		}
		m := messageType.New().Interface()
		if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(result.Message.Value, m); err != nil {
			return Reply{}, fmt.Errorf("unmarshal the stored %s: %w", name, err)
		}
		r.Message = m
	default:
		return Reply{}, errors.New("the stored reply holds neither a message nor an error")
	}
	return r, nil
}

// messageType finds the type to make a stored message with: the method's schema, where that is known and has it, else the
// Go type that is linked in. Both may be there and differ: a handler without generated code may have a newer schema than
// the one that was generated.
func messageType(name protoreflect.FullName, method protoreflect.MethodDescriptor) (protoreflect.MessageType, error) {
	linked, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if method != nil && method.Output().FullName() == name && (linked == nil || linked.Descriptor() != method.Output()) {
		return dynamicpb.NewMessageType(method.Output()), nil
	}
	if err != nil {
		return nil, fmt.Errorf("the reply's type %q is not known to this server, neither linked in nor the method's: %w", name, err)
	}
	return linked, nil
}

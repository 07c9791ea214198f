package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// fingerprintV1 stands in front of every digest of this definition: SHA-256 over the procedure's name, its length before
// it, and the request, marshalled deterministically. A later definition takes another name, and compares stored rows by
// the one that stands in front of them.
const fingerprintV1 = "v1:sha256:"

// fingerprint tells requests apart: the same procedure and request make the same fingerprint, in any codec.
func fingerprint(c Call) (string, error) {
	input := make([]byte, 0, 512)
	input = binary.AppendUvarint(input, uint64(len(c.Procedure)))
	input = append(input, c.Procedure...)
	switch {
	case c.Request == nil && c.Payload == nil:
		return "", errors.New("the call has neither a protobuf message nor a payload")
	case c.Request == nil:
		input = append(input, c.Payload...)
	default:
		var err error
		// AllowPartial: whether required fields are set is for the handler to judge.
		input, err = proto.MarshalOptions{Deterministic: true, AllowPartial: true}.MarshalAppend(input, c.Request)
		if err != nil {
			return "", fmt.Errorf("marshal %s for its fingerprint: %w", c.Request.ProtoReflect().Descriptor().FullName(), err)
		}
	}
	sum := sha256.Sum256(input)
	text := make([]byte, 0, len(fingerprintV1)+hex.EncodedLen(len(sum)))
	return string(hex.AppendEncode(append(text, fingerprintV1...), sum[:])), nil
}

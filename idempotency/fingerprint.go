package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
)

// definition is one way to make a fingerprint. Its name stands in front of every digest that it made, so that rows which
// an older server wrote, or one with another secret, are compared by the definition that they were written with.
type definition struct {
	name   string
	input  func(*Guard, Call) ([]byte, error)
	digest func(input []byte) []byte
}

// of returns the call's fingerprint, of visible ASCII characters.
func (d definition) of(g *Guard, c Call) (string, error) {
	input, err := d.input(g, c)
	if err != nil {
		return "", err
	}
	sum := d.digest(input)
	text := make([]byte, 0, 128) // a constant, more than any name and digest, so that it stays off the heap
	return string(hex.AppendEncode(append(text, d.name...), sum)), nil
}

// plainV1 is SHA-256 over inputV1.
func plainV1() definition {
	return definition{name: "v1:sha256:", input: inputV1, digest: func(input []byte) []byte {
		sum := sha256.Sum256(input)
		return sum[:]
	}}
}

// secretV1 is HMAC-SHA-256 over inputV1, which nobody without the secret can make for a request that they guess.
func secretV1(secret []byte) definition {
	return definition{name: "v1:hmac-sha256:", input: inputV1, digest: func(input []byte) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write(input)
		return h.Sum(nil)
	}}
}

// inputV1 is the procedure's name, its length before it, and the request in its canonical form, without the fields that
// do not count.
func inputV1(g *Guard, c Call) ([]byte, error) {
	input := make([]byte, 0, 512)
	input = binary.AppendUvarint(input, uint64(len(c.Procedure)))
	input = append(input, c.Procedure...)
	switch {
	case c.Request != nil:
		counted, err := g.ignored.without(c.Request)
		if err != nil {
			return nil, err
		}
		return appendCanonical(input, counted)
	case c.Payload != nil:
		return append(input, c.Payload...), nil
	default:
		return nil, errors.New("the call has neither a protobuf message nor a payload")
	}
}

// fingerprint tells requests apart: the same procedure and request make the same fingerprint, in any codec.
func (g *Guard) fingerprint(c Call) (string, error) { return g.definitions[0].of(g, c) }

// sameRequest reports whether a stored fingerprint is the call's, by any of the definitions that are accepted.
func (g *Guard) sameRequest(k *keyed, stored string) bool {
	if stored == k.fingerprint {
		return true
	}
	for _, d := range g.definitions[1:] {
		if !strings.HasPrefix(stored, d.name) {
			continue
		}
		if own, err := d.of(g, k.Call); err == nil && own == stored {
			return true
		}
	}
	return false
}

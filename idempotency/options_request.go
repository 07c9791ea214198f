package idempotency

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// WithKeyValidator adds a rule that a key has to keep beside those of [ParseKey]: a UUID only, say. Its error's text is told
// to the client, and must not repeat the key. Nil is no rule, the default. It is called concurrently.
func WithKeyValidator(valid func(key string) error) Option {
	return func(g *Guard) { g.validKey = valid }
}

// WithKeyField has the key read from a field of the request too, a string of this name at its top level, as Google's
// AIP-155 has it with "request_id". The metadata may carry the key as well, if it is the same one; if they disagree, the
// call is refused as [ReasonKeyInvalid]. An empty field, or a request without it, counts as no key. By default, and where
// the name is empty, no field is read.
func WithKeyField(name protoreflect.Name) Option { return func(g *Guard) { g.keyField = name } }

// WithReplayCheck sets a function that is asked before a stored reply is given out, for a caller whose rights have gone
// since the first call. An error refuses the call: an [*Error], or one of the adapter's own kind such as a *connect.Error,
// reaches the client as it is, and any other is kept from the client and becomes Internal. Nil asks nobody, the default. It
// is called concurrently.
func WithReplayCheck(may func(ctx context.Context, c Call, stored Reply) error) Option {
	return func(g *Guard) { g.mayReplay = may }
}

// WithIgnoredFields leaves fields of a request message out of its fingerprint: a client's attempt counter, the time at which
// it sent. Message is the request's full name, such as "charges.v1.CreateChargeRequest"; a path is field names joined with
// dots, and goes into every element of a list or map on its way. A path that the message does not have refuses its calls as
// [ReasonMisconfigured]. May be given more than once. A change of it makes a request's fingerprint another one, so that
// retries across the change are refused as reused.
func WithIgnoredFields(message protoreflect.FullName, paths ...string) Option {
	return func(g *Guard) { g.ignored[message] = append(g.ignored[message], paths...) }
}

// MinSecretLength is the least length of a secret, in bytes.
const MinSecretLength = 16

// WithFingerprintSecret makes fingerprints by HMAC-SHA-256. Without a secret they are SHA-256, which somebody who reads the
// table can compare with requests that they guess, card numbers for example. Previous secrets are accepted in rows that are
// there, and so are fingerprints that were made without one. A secret has at least [MinSecretLength] bytes; a shorter one is
// an error of New. All servers that share a table need the same secrets: to change one, first add the new one to the
// previous ones everywhere, then make it the current one.
func WithFingerprintSecret(current []byte, previous ...[]byte) Option {
	return func(g *Guard) {
		g.definitions = nil
		for _, secret := range append([][]byte{current}, previous...) {
			if len(secret) < MinSecretLength {
				g.faults = append(g.faults, fmt.Errorf("a fingerprint's secret has %d bytes, and must have at least %d", len(secret), MinSecretLength))
			}
			g.definitions = append(g.definitions, secretV1(slices.Clone(secret)))
		}
		g.definitions = append(g.definitions, plainV1())
	}
}

// WithEncryption encrypts what is stored of a reply by AES-256-GCM: message and type, error, header and trailer, in both
// forms; scope, key, procedure, request hash, state and code stand beside it in the clear, and a reply opens only in its
// own row. Previous keys open what they encrypted. It needs [WithFingerprintSecret]. All servers that share a table need the same
// keys: to change one, first add the new one to the previous ones everywhere, then make it the current one.
//
// A stored reply that does not open, or that is not encrypted (see [WithUnencryptedReplies]), is refused as
// [ReasonReplyUnreadable]. A key that is not valid is an error of New.
func WithEncryption(current EncryptionKey, previous ...EncryptionKey) Option {
	return func(g *Guard) { g.sealer = newSealer(current, previous) }
}

// WithUnencryptedReplies lets replies be replayed that were stored before [WithEncryption] was there. Leave it out once
// their TTL is over: whoever can write to the table could forge a reply that is not encrypted. Without
// WithEncryption it is an error of New.
func WithUnencryptedReplies() Option {
	return func(g *Guard) { g.acceptClear = true }
}

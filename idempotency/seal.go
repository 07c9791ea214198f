package idempotency

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// EncryptionKey is a key for stored replies.
type EncryptionKey struct {
	// ID names the key in the rows that were encrypted with it: 1 to 64 bytes of UTF-8 without U+0000, not secret, never
	// used for another key.
	ID string
	// Key is 32 random bytes.
	Key []byte
}

// sealer encrypts and decrypts stored replies by AES-256-GCM with a random nonce of 96 bits, which is good for 2^32
// replies a key (NIST SP 800-38D, section 8.3).
type sealer struct {
	current string
	ciphers map[string]cipher.AEAD
	faults  []error // of the keys that it was made with
}

func newSealer(current EncryptionKey, previous []EncryptionKey) *sealer {
	s := &sealer{current: current.ID, ciphers: make(map[string]cipher.AEAD)}
	for _, key := range append([]EncryptionKey{current}, previous...) {
		if err := s.add(key); err != nil {
			s.faults = append(s.faults, fmt.Errorf("the encryption key %q: %w", key.ID, err))
		}
	}
	return s
}

func (s *sealer) add(key EncryptionKey) error {
	switch _, twice := s.ciphers[key.ID]; {
	case key.ID == "" || len(key.ID) > 64:
		return fmt.Errorf("its id has %d bytes, and must have 1 to 64", len(key.ID))
	case !utf8.ValidString(key.ID) || strings.Contains(key.ID, "\x00"): // it stands in a protobuf string and in jsonb
		return errors.New("its id is not UTF-8 without U+0000")
	case twice:
		return errors.New("its id is there twice")
	case len(key.Key) != 32:
		return fmt.Errorf("it has %d bytes, and must have 32", len(key.Key))
	}
	block, err := aes.NewCipher(key.Key)
	if err != nil {
		return err
	}
	s.ciphers[key.ID], err = cipher.NewGCMWithRandomNonce(block)
	return err
}

// seal encrypts what a record holds of a reply: message and type, error, header and trailer, in both of its forms.
func (s *sealer) seal(k *keyed, r store.Record) (store.Record, error) {
	plain := r.Reply
	r.Readable, r.Reply = nil, nil
	sealed := &idempotencyv1.Sealed{KeyId: s.current}
	sealed.Ciphertext = s.ciphers[s.current].Seal(nil, nil, plain, associated(k.id, k.fingerprint, r)) //nolint:gosec // the nonce is the cipher's own
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(
		&idempotencyv1.StoredReply{Result: &idempotencyv1.StoredReply_Sealed{Sealed: sealed}})
	if err != nil {
		return store.Record{State: store.NotKept, Code: r.Code}, fmt.Errorf("idempotency: marshal the encrypted reply: %w", err)
	}
	r.Reply, r.Readable = encoded, sealedJSON{sealed}
	return r, nil
}

// open decrypts a stored reply. One that was altered, or moved from another row, does not open.
func (s *sealer) open(found *store.Found, sealed *idempotencyv1.Sealed) (*idempotencyv1.StoredReply, error) {
	aead, known := s.ciphers[sealed.KeyId]
	if !known {
		return nil, fmt.Errorf("the stored reply is encrypted with the key %q, which this server does not have", sealed.KeyId)
	}
	plain, err := aead.Open(nil, nil, sealed.Ciphertext, associated(found.ID, found.RequestHash, found.Record))
	if err != nil {
		return nil, fmt.Errorf("decrypt the stored reply with the key %q: %w", sealed.KeyId, err)
	}
	return unmarshalReply(plain)
}

// associated is what a reply is bound to: its row, the request, and the row's state and code.
func associated(id store.ID, fingerprint string, r store.Record) []byte {
	var b []byte
	for _, part := range []string{"connectidempotency.v1.Sealed", id.Scope, id.Key, fingerprint, r.State.String(), r.Code.String()} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// sealedJSON writes the envelope.
type sealedJSON struct{ sealed *idempotencyv1.Sealed }

func (s sealedJSON) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Algorithm  string `json:"algorithm"`
		KeyID      string `json:"key_id"`
		Ciphertext []byte `json:"ciphertext"`
	}{"AES-256-GCM", s.sealed.KeyId, s.sealed.Ciphertext})
}

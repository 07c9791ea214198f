package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func encryptionKey(id string) idempotency.EncryptionKey {
	return idempotency.EncryptionKey{ID: id, Key: bytes.Repeat([]byte(id[:1]), 32)}
}

func encrypted(current string, previous ...string) []idempotency.Option {
	keys := make([]idempotency.EncryptionKey, len(previous))
	for i, id := range previous {
		keys[i] = encryptionKey(id)
	}
	return []idempotency.Option{
		idempotency.WithFingerprintSecret(newSecret),
		idempotency.WithEncryption(encryptionKey(current), keys...),
	}
}

// telling is a reply with a secret in each of its parts.
func telling() idempotency.Reply {
	r := created("plain-id")
	r.Header = idempotency.Metadata{"x-plain-name": {"plain-value"}}
	r.Trailer = idempotency.Metadata{"x-cost": {"plain-cost"}}
	return r
}

func TestAnEncryptedReplyIsReplayedAndCannotBeRead(t *testing.T) {
	t.Parallel()
	declined := idempotency.Reply{Error: &idempotency.Error{Code: code.Code_NOT_FOUND, Message: "plain-text"}}
	for name, reply := range map[string]idempotency.Reply{"a message": telling(), "an error": declined} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased(), encrypted("one")...)
			r.mustRun(t, charge("k", 1), reply)
			got := r.do(t.Context(), charge("k", 1), neverRuns(t))
			if got.err != nil || !got.replayed || fmt.Sprint(got.reply.Header, got.reply.Trailer) != fmt.Sprint(reply.Header, reply.Trailer) {
				t.Fatalf("replayed %+v, %v", got.reply, got.err)
			}
			if !proto.Equal(got.reply.Message, reply.Message) || got.reply.Code() != reply.Code() {
				t.Errorf("replayed %+v, want %+v", got.reply, reply)
			}
			record := r.store.completed()[0].record
			body, err := record.Readable.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			for what, stored := range map[string][]byte{"the reply": record.Reply, "its JSON": body} {
				for _, secret := range []string{"plain", "charges.v1", "x-cost"} {
					if bytes.Contains(stored, []byte(secret)) {
						t.Errorf("%s holds %q in the clear", what, secret)
					}
				}
			}
			var envelope struct{ Algorithm, KeyID string }
			if err := json.Unmarshal(bytes.ReplaceAll(body, []byte("key_id"), []byte("KeyID")), &envelope); err != nil {
				t.Fatal(err)
			}
			if envelope.Algorithm != "AES-256-GCM" || envelope.KeyID != "one" {
				t.Errorf("the envelope is %+v", envelope)
			}
		})
	}
}

func TestEncryptionKeysRoll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, retry []idempotency.Option
		opens        bool
	}{
		"the same key":             {encrypted("one"), encrypted("one"), true},
		"a key that became former": {encrypted("one"), encrypted("two", "one"), true},
		"a key that is to come":    {encrypted("two", "one"), encrypted("one", "two"), true},
		"a key that is gone":       {encrypted("one"), encrypted("two"), false},
		"no key at all":            {encrypted("one"), encrypted("one")[:1], false},
		"in the clear before":      {encrypted("one")[:1], encrypted("one"), false},
		"in the clear, accepted":   {encrypted("one")[:1], append(encrypted("one"), idempotency.WithUnencryptedReplies()), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := leased()
			newRig(t, s, test.first...).mustRun(t, charge("k", 1), telling())
			r := newRig(t, s, test.retry...)
			if test.opens {
				r.mustReplay(t, charge("k", 1), telling().Message)
			} else {
				r.mustRefuse(t, charge("k", 1), code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
			}
		})
	}
}

func TestAnEncryptedReplyOpensInItsOwnRowAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *store.Claim, r *store.Record){
		"nothing":           func(*store.Claim, *store.Record) {},
		"another key":       func(c *store.Claim, _ *store.Record) { c.ID.Key = "l" },
		"another scope":     func(c *store.Claim, _ *store.Record) { c.ID.Scope = "other" },
		"another code":      func(_ *store.Claim, r *store.Record) { r.Code = code.Code_NOT_FOUND },
		"a bit of the text": func(_ *store.Claim, r *store.Record) { r.Reply[len(r.Reply)-1] ^= 1 },
		"a bit of its key":  func(_ *store.Claim, r *store.Record) { r.Reply[4] ^= 1 },
		"cut short":         func(_ *store.Claim, r *store.Record) { r.Reply = r.Reply[:len(r.Reply)-20] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newRig(t, leased(), encrypted("one")...)
			first.mustRun(t, charge("k", 1), telling())
			claim, record := first.store.asked()[0], first.store.completed()[0].record
			record.Reply = bytes.Clone(record.Reply)
			change(&claim, &record)
			moved := leased()
			_, attempt, err := moved.Claim(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			if err := attempt.Complete(t.Context(), record, false); err != nil {
				t.Fatal(err)
			}
			c := charge(claim.ID.Key, 1)
			r := newRig(t, moved, append(encrypted("one"), scoped(claim.ID.Scope))...)
			if name == "nothing" {
				r.mustReplay(t, c, telling().Message)
			} else {
				r.mustRefuse(t, c, code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
			}
		})
	}
}

// scoped has every call in one scope.
func scoped(scope string) idempotency.Option {
	return idempotency.WithScope(func(ctx context.Context, _ idempotency.Call) (string, error) { return scope, ctx.Err() })
}

func TestEncryptionThatCannotBe(t *testing.T) {
	t.Parallel()
	secret := idempotency.WithFingerprintSecret(newSecret)
	short, unnamed := encryptionKey("one"), encryptionKey("one")
	short.Key, unnamed.ID = short.Key[:16], ""
	garbled, nul := encryptionKey("one"), encryptionKey("one")
	garbled.ID, nul.ID = "\xff", "a\x00b" // no reply could be kept with the first, nor its envelope as jsonb with the second
	for name, opts := range map[string][]idempotency.Option{
		"no secret":             {idempotency.WithEncryption(encryptionKey("one"))},
		"a short key":           {secret, idempotency.WithEncryption(short)},
		"a key without an id":   {secret, idempotency.WithEncryption(unnamed)},
		"an id that is no text": {secret, idempotency.WithEncryption(garbled)},
		"an id with U+0000":     {secret, idempotency.WithEncryption(nul)},
		"one id twice":          {secret, idempotency.WithEncryption(encryptionKey("one"), encryptionKey("one"))},
		"clear without a key":   {idempotency.WithUnencryptedReplies()},
		"a former key is short": {secret, idempotency.WithEncryption(encryptionKey("two"), short)},
	} {
		if _, err := idempotency.New(leased(), append(opts, idempotency.WithSingleScope())...); err == nil {
			t.Errorf("%s: New took it", name)
		}
	}
}

// The size limit is on the reply itself, encrypted or not.
func TestTheSizeLimitIsThatOfTheReplyInTheClear(t *testing.T) {
	t.Parallel()
	m := &chargesv1.CreateChargeResponse{Charge: &chargesv1.Charge{Id: "ch_1"}}
	r := newRig(t, leased(), append(encrypted("one"), idempotency.WithMaxReplySize(proto.Size(m)))...)
	r.mustRun(t, charge("k", 1), idempotency.Reply{Message: m})
	r.mustReplay(t, charge("k", 1), m)
}

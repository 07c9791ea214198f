package replay

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func encryptionKey(id string) idempotency.EncryptionKey {
	return idempotency.EncryptionKey{ID: id, Key: bytes.Repeat([]byte(id[:1]), 32)}
}

// sealing are the options of a server whose replies are encrypted.
func sealing(current string, previous ...string) []idempotency.Option {
	var older []idempotency.EncryptionKey
	for _, id := range previous {
		older = append(older, encryptionKey(id))
	}
	return []idempotency.Option{
		idempotency.WithEncryption(encryptionKey(current), older...),
		idempotency.WithFingerprintSecret([]byte("the secret of the fingerprints")),
	}
}

func TestEncryptedReplies(t *testing.T) {
	text := "a\x00b \\u0000 😀"
	answers := map[string]answer{
		"empty": {message: new(testv1.Proto3Message)},
		"a message": {
			message: &testv1.Proto3Message{StringValue: text, DoubleValue: 1e-320},
			header:  several, trailer: several, infoHeader: several, infoTrailer: several,
		},
		"no JSON":        {message: &anypb.Any{TypeUrl: "type.googleapis.com/elsewhere.v1.NotLinked", Value: []byte{0xff}}},
		"unknown fields": {message: withUnknown(withExtensions())},
		"an error": fails(func() error {
			return withMetadata(withDetails(t, connect.NewError(connect.CodeDataLoss, errors.New(text))))
		}),
		"an error of no text": fails(func() error { return connect.NewError(connect.CodeCanceled, nil) }),
		"a plain error":       fails(func() error { return errors.New("plain") }),
	}
	shared := newTable(t)
	for _, mode := range modes {
		r := newRig(t, shared, mode, sealing("2026")...)
		for name, a := range answers {
			t.Run(mode+"/"+name, func(t *testing.T) { _ = r.holds(t, a, protocols...) })
		}
		t.Run(mode+"/random messages", rapid.MakeCheck(func(t *rapid.T) {
			d := drawer{t: t, odd: true}
			m := new(testv1.WellKnownMessage)
			d.fill(m.ProtoReflect(), 0)
			_ = r.holds(t, answer{message: m, header: d.metadata("header")}, rapid.SampledFrom(protocols).Draw(t, "first over"))
		}))
	}
}

// A dump of the table gives away nothing of reply or request, whichever way it is written there; the same search finds all of
// it where replies are not encrypted.
func TestDumpOfEncryptedReplies(t *testing.T) {
	const path = "/replay.test/Secret"
	marks := []string{"secret-text", "secret-bytes", "secret-header", "x-secret-name", "secret-trailer", "secret-info", "Proto3Message",
		"secret-error", "secret-detail", "SecretType", "secret-metadata"}
	failing := fails(func() error {
		e := connect.NewError(connect.CodeNotFound, errors.New("a secret-error"))
		e.Meta().Set("X-Meta", "a secret-metadata")
		return withDetail(t, e, &anypb.Any{TypeUrl: "type.googleapis.com/elsewhere.v1.SecretType", Value: []byte("a secret-detail")})
	})
	message := answer{
		message: &testv1.Proto3Message{StringValue: "a secret-text", BytesValue: []byte("secret-bytes")},
		header:  http.Header{"X-Secret-Name": {"a secret-header"}}, trailer: http.Header{"X-T": {"a secret-trailer"}},
		infoHeader: http.Header{"X-I": {"a secret-info"}},
	}
	for _, mode := range modes {
		sealed, plain := newRig(t, newTable(t), mode, sealing("2026")...), newRig(t, newTable(t), mode)
		for _, r := range []*rig{sealed, plain} {
			handleAt[testv1.Proto3Message](r, path, nil)
			for i, a := range []answer{message, failing} {
				_ = r.call(t, grpc, path, r.register(a), fmt.Sprint("k", i))
			}
		}
		dump, plainDump := sealed.dump(t), plain.dump(t)
		for _, mark := range marks {
			if !stands(plainDump, mark) {
				t.Errorf("%s: %q is not found in the table that is not encrypted", mode, mark)
			}
			if stands(dump, mark) {
				t.Errorf("%s: %q is in the dump: %s", mode, mark, dump)
			}
		}
		var digest string
		if err := plain.pool.QueryRow(t.Context(), "select split_part(request_hash, ':', 3) from idempotency_keys where key = 'k0'").Scan(&digest); err != nil {
			t.Fatal(err)
		}
		if len(digest) != 64 || !strings.Contains(plainDump, digest) || strings.Contains(dump, digest) {
			t.Errorf("%s: the plain digest %q of the request is in the dump: %s", mode, digest, dump)
		}
	}
}

// dump is the table as text.
func (t table) dump(tt tb) (dump string) {
	tt.Helper()
	if err := t.pool.QueryRow(tt.Context(), "select string_agg(k::text, E'\\n') from idempotency_keys k").Scan(&dump); err != nil {
		tt.Fatal(err)
	}
	return dump
}

// stands reports whether text is in a dump, as it is, in hexadecimal, or within something in base64.
func stands(dump, text string) bool {
	forms := []string{text, fmt.Sprintf("%x", text)}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text...))
		forms = append(forms, encoded[(8*before+5)/6:len(encoded)-1]) // without what its neighbours have a part in
	}
	for _, form := range forms {
		if strings.Contains(dump, form) {
			return true
		}
	}
	return false
}

// A row that was altered, or holds what was moved from another, does not open, over any protocol, and its handler does not
// run.
func TestAlteredRowDoesNotOpen(t *testing.T) {
	a := answer{message: &testv1.Proto3Message{StringValue: private}, header: http.Header{"X-Private": {private}}}
	forged := storedMessage(t, "connectidempotency.test.v1.Proto3Message", nil)
	const precondition = connect.CodeFailedPrecondition
	shared := newTable(t)
	for _, mode := range modes {
		r := newRig(t, shared, mode, sealing("2026")...)
		name, other := r.register(a), r.register(answer{message: wrapperspb.String("other")})
		call := func(name, key string) wire { return r.call(t, connectProto, a.path(), name, key) }
		for what, c := range map[string]struct {
			sql    string // $1 is the altered row's key, $2 another's
			args   []any
			asOf   string // the request of the other row and of the retry; that of the altered row where empty
			code   connect.Code
			reason string
		}{
			"cut short":                       {sql: "response_bytes = substring(response_bytes for length(response_bytes) - 1)"},
			"reply removed":                   {sql: "response_bytes = null"},
			"reply of the same request moved": {sql: "response_bytes = (select response_bytes from idempotency_keys where key = $2)"},
			"whole row of the same request moved": {sql: "(state, code, request_hash, token, response_body, response_bytes) = " +
				"(select state, code, request_hash, token, response_body, response_bytes from idempotency_keys where key = $2)"},
			"a reply that is not encrypted": {sql: "response_bytes = $3", args: []any{forged}},
			"one behind the encrypted one":  {sql: "response_bytes = response_bytes || $3", args: []any{forged}},
			"a code that is none":           {sql: "code = 'BOGUS'"},
			"another code":                  {sql: "code = 'NOT_FOUND'"},
			"another key's name":            {sql: `response_bytes = overlay(response_bytes placing '2025' from position('2026'::bytea in response_bytes))`},
			"another request's hash":        {sql: "request_hash = (select request_hash from idempotency_keys where key = $2)", asOf: other},
			"the hash of no request":        {sql: "request_hash = 'v1:hmac-sha256:00'", code: precondition, reason: idempotency.ReasonKeyReused},
			"a plain hash":                  {sql: "request_hash = 'v1:sha256:00'", code: precondition, reason: idempotency.ReasonKeyReused},
			"not kept":                      {sql: "state = 'not_kept'", code: precondition, reason: idempotency.ReasonReplyNotKept},
			"in progress": {
				sql:  "state = 'in_progress', code = null, lease_until = now() + interval '1 hour'",
				code: connect.CodeAborted, reason: idempotency.ReasonKeyInProgress,
			},
		} {
			t.Run(mode+"/"+what, func(t *testing.T) {
				key, like := r.newKey(), r.newKey()
				_ = call(name, key)
				_ = call(cmp.Or(c.asOf, name), like)
				r.exec(t, "update idempotency_keys set "+c.sql+" where key = $1 and $2::text is not null", append([]any{key, like}, c.args...)...)
				if c.reason == "" {
					c.code, c.reason = connect.CodeInternal, idempotency.ReasonReplyUnreadable
				}
				for _, p := range protocols {
					r.call(t, p, a.path(), cmp.Or(c.asOf, name), key).mustRefuse(t, c.code, c.reason)
					if c.reason == idempotency.ReasonReplyUnreadable {
						r.mustLogNothingPrivate(t, a.path(), key, private)
					}
				}
				if n := r.ran(key); n != 1 {
					t.Errorf("the handler ran %d times", n)
				}
			})
		}
	}
}

// Not one byte of a stored reply can be changed.
func TestAlteredByteDoesNotOpen(t *testing.T) {
	a := answer{message: &testv1.Proto3Message{StringValue: private}}
	r := newRig(t, newTable(t), "leased", sealing("2026")...)
	name, key := r.register(a), r.newKey()
	_ = r.call(t, grpc, a.path(), name, key)
	stored := r.row(t, key).bytes
	for i := range stored {
		altered := bytes.Clone(stored)
		altered[i] ^= 1 << (i % 8)
		r.exec(t, "update idempotency_keys set response_bytes = $2 where key = $1", key, altered)
		r.call(t, protocols[i%len(protocols)], a.path(), name, key).mustRefuse(t, connect.CodeInternal, idempotency.ReasonReplyUnreadable)
	}
	if n := r.ran(key); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
	// As it was, it opens.
	r.exec(t, "update idempotency_keys set response_bytes = $2 where key = $1", key, stored)
	if replay := r.call(t, grpc, a.path(), name, key); !replay.takeMark() {
		t.Errorf("the row that was put back is not replayed: %v", replay)
	}
}

// Header and trailer that somebody wrote beside the encrypted reply do not count.
func TestMetadataBesideAnEncryptedReply(t *testing.T) {
	a := answer{message: new(testv1.Proto3Message)}
	r := newRig(t, newTable(t), "leased", sealing("2026")...)
	name, key := r.register(a), r.newKey()
	_ = r.call(t, grpc, a.path(), name, key)
	forged := storedBytes(t, &idempotencyv1.StoredReply{Header: []*idempotencyv1.Metadata{{Name: "x-forged", Values: [][]byte{[]byte("1")}}}})
	r.exec(t, "update idempotency_keys set response_bytes = response_bytes || $2 where key = $1", key, forged)
	for _, p := range protocols {
		fresh, replay := r.call(t, p, a.path(), name, ""), r.call(t, p, a.path(), name, key)
		if !replay.takeMark() {
			t.Errorf("over %s: no replay: %v", p.name, replay)
		}
		if d := replay.differs(fresh, a.newReply); d != "" {
			t.Errorf("over %s: in the replay and the fresh answer %s", p.name, d)
		}
	}
}

// Servers with the key, current or previous, open what another encrypted; those without it refuse, and do not run.
func TestKeysOfEncryptedReplies(t *testing.T) {
	a := answer{message: &testv1.Proto3Message{StringValue: private}}
	shared := newTable(t)
	writer := newRig(t, shared, "leased", sealing("2026")...)
	name := writer.register(a)
	_ = writer.call(t, grpc, a.path(), name, "k")
	sameName := idempotency.WithEncryption(idempotency.EncryptionKey{ID: "2026", Key: make([]byte, 32)})
	for who, c := range map[string]struct {
		options []idempotency.Option
		opens   bool
	}{
		"the same key":                    {options: sealing("2026"), opens: true},
		"the key as a previous one":       {options: sealing("3026", "2026"), opens: true},
		"another key":                     {options: sealing("3026")},
		"another key of that name":        {options: append(sealing("2026"), sameName)},
		"no key, and the secret":          {options: sealing("2026")[1:]},
		"accepting what is not encrypted": {options: append(sealing("3026"), idempotency.WithUnencryptedReplies())},
	} {
		r := newRig(t, shared, "transactional", c.options...)
		_ = r.register(a)
		for _, p := range protocols {
			got := r.call(t, p, a.path(), name, "k")
			switch replayed := got.takeMark(); {
			case replayed != c.opens:
				t.Errorf("%s, over %s: replayed is %v: %v", who, p.name, replayed, got)
			case !replayed:
				got.mustRefuse(t, connect.CodeInternal, idempotency.ReasonReplyUnreadable)
			}
		}
		if n := r.ran("k"); n != 0 {
			t.Errorf("%s: the handler ran %d times", who, n)
		}
	}
}

// mustKeepSealed checks that response_body is the envelope of response_bytes.
func (r *rig) mustKeepSealed(t tb, row row, sealed *idempotencyv1.Sealed) {
	t.Helper()
	envelope := fmt.Sprintf(`{"algorithm": "AES-256-GCM", "key_id": %q, "ciphertext": %q}`,
		sealed.GetKeyId(), base64.StdEncoding.EncodeToString(sealed.GetCiphertext()))
	if row.body == nil {
		t.Fatalf("response_body is null, want %s", envelope)
	}
	r.mustEqualJSON(t, *row.body, []byte(envelope))
}

package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
)

// row is what the table keeps of a reply, as SQL has it.
type row struct {
	state string
	code  *string
	body  *string // response_body, as text
	bytes []byte  // response_bytes
}

func (t table) row(tt tb, key string) (r row) {
	tt.Helper()
	err := t.pool.QueryRow(tt.Context(), `
		select state, code, response_body::text, response_bytes from idempotency_keys where scope = '' and key = $1`, key).
		Scan(&r.state, &r.code, &r.body, &r.bytes)
	if err != nil {
		tt.Fatal(err)
	}
	return r
}

// mustKeep checks that the row holds the answer, exact in response_bytes, and the same in response_body wherever jsonb
// can hold what Connect writes in JSON.
func (r *rig) mustKeep(t tb, key string, a answer, inJSON wire) {
	t.Helper()
	row := r.row(t, key)
	stored := new(idempotencyv1.StoredReply)
	if err := proto.Unmarshal(row.bytes, stored); err != nil {
		t.Fatal(err)
	}
	if row.state != "completed" {
		t.Fatalf("the row's state is %s", row.state)
	}
	if sealed := stored.GetSealed(); sealed != nil {
		r.mustKeepSealed(t, row, sealed)
		return
	}
	written := inJSON.payloads[0]
	if a.message != nil {
		message := r.mustKeepMessage(t, a.message, row, stored.GetMessage())
		if _, err := protojson.Marshal(message); err != nil {
			written = nil
		}
	}
	switch accepted := written != nil && depth(written) <= mostNesting && r.accepts(t, written); {
	case !accepted && row.body != nil:
		t.Fatalf("response_body is %.1000s, and Connect writes %.1000s", *row.body, written)
	case !accepted:
	case row.body == nil:
		t.Fatalf("response_body is null; jsonb can hold %.1000s", written)
	default:
		r.mustEqualJSON(t, *row.body, written)
	}
}

// mustKeepMessage checks response_bytes, and that response_body, where it is there, says the same. It returns the message.
func (r *rig) mustKeepMessage(t tb, want proto.Message, row row, stored *idempotencyv1.Message) proto.Message {
	t.Helper()
	if name := string(want.ProtoReflect().Descriptor().FullName()); stored.GetTypeName() != name {
		t.Fatalf("response_bytes hold a %q, want a %s", stored.GetTypeName(), name)
	}
	wantBytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored.GetValue(), wantBytes) {
		t.Fatalf("response_bytes hold\n%x, want\n%x", stored.GetValue(), wantBytes)
	}
	message := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(stored.GetValue(), message); err != nil {
		t.Fatal(err)
	}
	if row.body == nil {
		return message
	}
	read := want.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(*row.body), read); err != nil {
		t.Fatalf("response_body is no %T: %v in %.1000s", want, err, *row.body)
	} else if left := asInJSON(t, message); !proto.Equal(read, left) {
		t.Fatalf("response_body says\n%v, and response_bytes\n%v", read, left)
	}
	return message
}

// mostNesting is the depth of the deepest JSON that the store gives to the database, whose parser's own limit is the depth
// of its stack.
const mostNesting = 500

// depth is how deep JSON is nested.
func depth(written []byte) (deepest int) {
	at := 0
	for tokens := json.NewDecoder(bytes.NewReader(written)); ; {
		token, err := tokens.Token()
		if err != nil {
			return deepest // the end; or it is no JSON, which the database will say
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			at++
		case json.Delim(']'), json.Delim('}'):
			at--
		}
		deepest = max(deepest, at)
	}
}

// accepts asks the database whether jsonb can hold a text.
func (t table) accepts(tt tb, text []byte) bool {
	tt.Helper()
	_, err := t.pool.Exec(tt.Context(), "select $1::text::jsonb", string(text))
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(refused.Code, "22") { // data exception
		return false
	}
	if err != nil {
		tt.Fatal(err)
	}
	return true
}

// mustEqualJSON checks what jsonb made of a text.
func (t table) mustEqualJSON(tt tb, body string, written []byte) {
	tt.Helper()
	var same bool
	if err := t.pool.QueryRow(tt.Context(), "select $1::text::jsonb = $2::text::jsonb", body, string(written)).Scan(&same); err != nil {
		tt.Fatal(err)
	}
	if !same {
		tt.Fatalf("response_body is\n%.1000s, want\n%.1000s", body, written)
	}
}

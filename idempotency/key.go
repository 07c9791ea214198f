package idempotency

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxKeyLength is how many characters a key may have.
const MaxKeyLength = 255

// DefaultHeader is the metadata that carries the key, named by the IETF draft "The Idempotency-Key HTTP Header Field".
const DefaultHeader = "idempotency-key"

// key reads the call's one key, from its metadata and, where the guard looks there, from a field of its request. It returns
// "" where there is none and none is needed.
func (g *Guard) key(c Call, required bool) (string, error) {
	sent := c.Keys
	if len(sent) > 1 {
		return "", invalidKey(fmt.Errorf("it was sent %d times; send it once", len(sent)))
	}
	if field := g.fieldKey(c.Request); field != "" {
		sent = append(slices.Clip(sent), field)
	}
	if len(sent) == 0 {
		if !required {
			return "", nil
		}
		return "", refusal(code.Code_INVALID_ARGUMENT, ReasonKeyRequired, nil,
			"this procedure needs an idempotency key; send one that is new for each operation and the same for its retries")
	}
	keys := make([]string, len(sent))
	for i, value := range sent {
		var err error
		if keys[i], err = ParseKey(value); err != nil {
			return "", invalidKey(err)
		}
	}
	if keys[0] != keys[len(keys)-1] {
		return "", invalidKey(fmt.Errorf("the metadata and the request's field %s name different keys; send one", g.keyField))
	}
	if g.validKey != nil {
		if err := g.validKey(keys[0]); err != nil {
			return "", invalidKey(err)
		}
	}
	return keys[0], nil
}

// fieldKey is what the request's field for the key holds, "" where it has none.
func (g *Guard) fieldKey(m proto.Message) string {
	if g.keyField == "" || m == nil {
		return ""
	}
	message := m.ProtoReflect()
	field := message.Descriptor().Fields().ByName(g.keyField)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return ""
	}
	return message.Get(field).String()
}

func invalidKey(why error) *Error {
	return refusal(code.Code_INVALID_ARGUMENT, ReasonKeyInvalid, nil, "the idempotency key is not valid: %v", why)
}

// ParseKey returns the key that a metadata value names: 1 to [MaxKeyLength] visible ASCII characters (0x21 to 0x7E),
// either bare or as a structured-field string (RFC 9651, section 3.3.3), in double quotes with \" and \\ as its only
// escapes, which is the form of the IETF draft. Both forms of a key are the same key. Blanks around the value do not
// count, as in HTTP. A value that is the same more than once, with commas between, is what a proxy makes of a key that
// was sent more than once, and is refused.
//
// The error says what is wrong with the value, and does not repeat it.
func ParseKey(value string) (string, error) {
	value = strings.Trim(value, " \t")
	k := value
	if strings.HasPrefix(value, `"`) {
		var err error
		if k, err = unquote(value); err != nil {
			return "", err
		}
	}
	switch {
	case k == "":
		return "", fmt.Errorf("it is empty; send 1 to %d visible ASCII characters", MaxKeyLength)
	case len(k) > MaxKeyLength:
		return "", errTooLong()
	case sentTwice(k):
		return "", errors.New("it was sent twice and joined with a comma; send it once")
	}
	for i := range len(k) {
		if k[i] < 0x21 || k[i] > 0x7e {
			return "", fmt.Errorf("byte %d is 0x%02x; only visible ASCII characters are allowed", i, k[i])
		}
	}
	return k, nil
}

// sentTwice recognises the value that a proxy makes of a header that came twice, or more often.
func sentTwice(k string) bool {
	first, rest, joined := strings.Cut(k, ",")
	if first == "" || !joined {
		return false
	}
	for part := range strings.SplitSeq(rest, ",") {
		if strings.TrimLeft(part, " \t") != first {
			return false
		}
	}
	return true
}

func errTooLong() error {
	return fmt.Errorf("it has more than %d characters, which is the most that is allowed", MaxKeyLength)
}

// unquote reads a structured-field string that spans all of value, no further than the key may be long.
func unquote(value string) (string, error) {
	var k strings.Builder
	for i := 1; i < len(value); i++ {
		if k.Len() > MaxKeyLength {
			return "", errTooLong()
		}
		switch c := value[i]; {
		case c == '"' && i == len(value)-1:
			return k.String(), nil
		case c == '"':
			return "", errors.New(`something follows the closing quote; send the quoted key alone, once`)
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", errors.New(`in a quoted key a backslash may only stand before " or \`)
			}
			k.WriteByte(value[i])
		default:
			k.WriteByte(c)
		}
	}
	return "", errors.New("it begins with a quote and does not end with one; close the quote, or send the key bare")
}

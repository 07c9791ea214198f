package postgres

import (
	"bytes"
	"unicode/utf8"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

// maxNesting keeps clear of the depth at which the server's JSON parser runs out of stack.
const maxNesting = 500

// readableText returns the reply as jsonb can hold it, and nil where it cannot: the exact form stands beside it, so that
// nothing is lost. It is text, since two of pgx's exec modes take bytes for bytea.
func readableText(r store.Record) *string {
	if r.Readable == nil {
		return nil
	}
	written, err := r.Readable.MarshalJSON()
	if err != nil || !fitsJSONB(written) {
		return nil
	}
	text := string(written)
	return &text
}

// fitsJSONB reports whether jsonb takes valid JSON: it refuses U+0000, which can only stand there as an escape, text that
// is not UTF-8, and what is nested too deep. Lone surrogates, which it refuses too, are not made from UTF-8.
func fitsJSONB(written []byte) bool {
	if !utf8.Valid(written) {
		return false
	}
	if !bytes.ContainsAny(written, "[{\\") {
		return true
	}
	depth, inString := 0, false
	for i := 0; i < len(written); i++ {
		switch c := written[i]; {
		case c == '"':
			inString = !inString
		case c == '\\':
			if bytes.HasPrefix(written[i:], []byte(`\u0000`)) {
				return false
			}
			i++ // what is escaped is no quote and no backslash of its own
		case !inString && (c == '[' || c == '{'):
			if depth++; depth > maxNesting {
				return false
			}
		case !inString && (c == ']' || c == '}'):
			depth--
		}
	}
	return true
}

package postgres

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/connect-idempotency/connect-idempotency-go/store"
)

const (
	// maxNesting keeps clear of the depth at which the server's JSON parser runs out of stack.
	maxNesting = 500
	// maxNumber keeps clear of the size of a numeric, and maxExponent of its range: 131,072 digits before the point and
	// 16,383 behind it.
	maxNumber   = 1000
	maxExponent = 10_000
)

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

// fitsJSONB reports whether jsonb takes what was written: JSON in UTF-8, with no escape of U+0000 or of half a surrogate
// pair, no number beyond a numeric, and not nested too deep.
func fitsJSONB(written []byte) bool {
	if !utf8.Valid(written) || !json.Valid(written) {
		return false
	}
	depth := 0
	for i := 0; i < len(written); {
		length, fits := 1, true
		switch c := written[i]; {
		case c == '"':
			length, fits = stringFits(written[i:])
		case c == '[' || c == '{':
			depth++
			fits = depth <= maxNesting
		case c == ']' || c == '}':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			length, fits = numberFits(written[i:])
		}
		if !fits {
			return false
		}
		i += length
	}
	return true
}

// stringFits measures the valid JSON string that text begins with.
func stringFits(text []byte) (length int, fits bool) {
	for i := 1; ; {
		switch {
		case text[i] == '"':
			return i + 1, true
		case text[i] != '\\':
			i++
		case text[i+1] != 'u':
			i += 2
		default:
			r := escaped(text[i:])
			i += 6
			if utf16.IsSurrogate(r) {
				if utf16.DecodeRune(r, escaped(text[i:])) == utf8.RuneError {
					return 0, false
				}
				i += 6
			}
			if r == 0 {
				return 0, false
			}
		}
	}
}

// escaped reads the escape by \u and four digits that text begins with; -1 where it begins with none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	r, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(r)
}

// numberFits measures the valid JSON number that text begins with.
func numberFits(text []byte) (length int, fits bool) {
	length = len(text) - len(bytes.TrimLeft(text, "+-.0123456789eE"))
	number := text[:length]
	if _, exponent, ok := bytes.Cut(bytes.ToLower(number), []byte("e")); ok {
		e, err := strconv.Atoi(string(exponent))
		if err != nil || max(e, -e) > maxExponent {
			return length, false
		}
	}
	return length, length <= maxNumber
}

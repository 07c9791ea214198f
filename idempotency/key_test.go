package idempotency_test

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

func TestParseKeyAccepts(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("k", idempotency.MaxKeyLength)
	for name, c := range map[string]struct{ value, want string }{
		"one character":                   {"k", "k"},
		"the first visible character":     {"!", "!"},
		"the last visible character":      {"~", "~"},
		"a UUID":                          {"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		"255 characters":                  {longest, longest},
		"blanks around it":                {" \tk\t ", "k"},
		"a quote within a bare key":       {`a"b"`, `a"b"`},
		"a backslash in a bare key":       {`a\b`, `a\b`},
		"quoted":                          {`"k"`, "k"},
		"quoted, with blanks around it":   {"\t\"k\" ", "k"},
		"quoted, 255 characters":          {`"` + longest + `"`, longest},
		"quoted, 255 characters escaped":  {`"` + strings.Repeat(`\\`, 255) + `"`, strings.Repeat(`\`, 255)},
		"quoted, an escaped quote":        {`"a\"b"`, `a"b`},
		"quoted, an escaped backslash":    {`"a\\b"`, `a\b`},
		"quoted, escaped backslash last":  {`"a\\"`, `a\`},
		"quoted, a key that is a quote":   {`"\""`, `"`},
		"a comma between different parts": {"a,b", "a,b"},
		"a comma alone":                   {",", ","},
		"a comma last":                    {"a,", "a,"},
		"quoted, a comma":                 {`"a,b"`, "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := idempotency.ParseKey(c.value)
			if err != nil || got != c.want {
				t.Errorf("ParseKey(%q) = %q, %v; want %q", c.value, got, err, c.want)
			}
		})
	}
}

// refusedKeys are values that name no key. Those with a text in them have it from secretKey.
func refusedKeys() map[string]struct{ value, why string } {
	const s = secretKey
	return map[string]struct{ value, why string }{
		"empty":                          {"", "send 1 to 255"},
		"blanks alone":                   {" \t ", "send 1 to 255"},
		"quoted, empty":                  {`""`, "send 1 to 255"},
		"256 characters":                 {s + strings.Repeat("k", 256-len(s)), "255"},
		"quoted, 256 characters":         {`"` + s + strings.Repeat("k", 256-len(s)) + `"`, "255"},
		"a blank within":                 {s + " " + s, "0x20"},
		"a tab within":                   {s + "\t" + s, "0x09"},
		"a control character":            {s + "\x1f", "0x1f"},
		"a line end":                     {s + "\n", "0x0a"},
		"NUL":                            {s + "\x00", "0x00"},
		"DEL":                            {s + "\x7f", "0x7f"},
		"a letter beyond ASCII":          {s + "é", "0xc3"},
		"a byte that is no UTF-8":        {s + "\xff", "0xff"},
		"a no-break space around it":     {"\u00a0" + s, "0xc2"},
		"quoted, a blank":                {`"` + s + ` "`, "0x20"},
		"quoted, a control character":    {`"` + s + "\x01" + `"`, "0x01"},
		"quoted, beyond ASCII":           {`"` + s + `é"`, "0xc3"},
		"a quote alone":                  {`"`, "close the quote"},
		"an unterminated quote":          {`"` + s, "close the quote"},
		"a quote that is escaped away":   {`"` + s + `\"`, "close the quote"},
		"a backslash last":               {`"` + s + `\`, "backslash"},
		"another escape":                 {`"` + s + `\n"`, "backslash"},
		"something behind the quote":     {`"` + s + `"x`, "follows"},
		"a parameter behind the quote":   {`"` + s + `";a=1`, "follows"},
		"an item behind the quote":       {`"` + s + `", "` + s + `"`, "follows"},
		"sent twice, joined by ', '":     {s + ", " + s, "twice"},
		"sent twice, joined by ','":      {s + "," + s, "twice"},
		"sent twice, joined by a tab":    {s + ",\t" + s, "twice"},
		"sent three times, joined":       {s + ", " + s + "," + s, "twice"},
		"quoted, twice the same in one":  {`"` + s + `,` + s + `"`, "twice"},
		"different keys, joined by ', '": {s + ", other", "0x20"},
	}
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range refusedKeys() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := idempotency.ParseKey(c.value)
			if err == nil {
				t.Fatalf("ParseKey(%q) = %q, want an error", c.value, got)
			}
			if got != "" {
				t.Errorf("the key is %q beside an error", got)
			}
			if !strings.Contains(err.Error(), c.why) {
				t.Errorf("the error is %q, want it to say %q", err, c.why)
			}
			if strings.Contains(err.Error(), secretKey) {
				t.Errorf("the error repeats the key: %q", err)
			}
		})
	}
}

func TestAnInvalidKeyReachesNeitherHandlerNorStore(t *testing.T) {
	t.Parallel()
	for name, c := range refusedKeys() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leased())
			e := r.refusal(t, charge(c.value, 1), code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyInvalid)
			if strings.Contains(e.Error()+e.Message, secretKey) {
				t.Errorf("the refusal repeats the key: %v", e)
			}
			if n := len(r.store.asked()); n != 0 {
				t.Errorf("the store was asked %d times", n)
			}
			if o := r.last(t); o.Outcome != idempotency.Invalid || o.KeyDigest != "" {
				t.Errorf("observed %v of key %q, want invalid of none", o.Outcome, o.KeyDigest)
			}
		})
	}
}

func TestAKeyThatIsSentTwiceIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	for name, keys := range map[string][]string{
		"the same":  {secretKey, secretKey},
		"different": {secretKey, "other"},
		"one empty": {secretKey, ""},
	} {
		c := charge("", 1)
		c.Keys = keys
		e := r.refusal(t, c, code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyInvalid)
		if strings.Contains(e.Error(), secretKey) {
			t.Errorf("%s: the refusal repeats the key: %v", name, e)
		}
	}
	if n := len(r.store.asked()); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestARequiredKeyThatIsAbsentIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased(), idempotency.WithKeyRequired())
	c := charge("", 1)
	c.Keys = nil
	r.mustRefuse(t, c, code.Code_INVALID_ARGUMENT, idempotency.ReasonKeyRequired)
	if o := r.last(t); o.Outcome != idempotency.Invalid {
		t.Errorf("observed %v, want invalid", o.Outcome)
	}
}

func TestBareAndQuotedNameTheSameKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, leased())
	first := created("ch_1")
	r.mustRun(t, charge(`a"b\c`, 1), first)
	r.mustReplay(t, charge(`"a\"b\\c"`, 1), first.Message)
	r.mustReplay(t, charge(` a"b\c `, 1), first.Message)
}

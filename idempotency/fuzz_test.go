package idempotency_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	idempotencyv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/v1"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
	"github.com/connect-idempotency/connect-idempotency-go/store"
)

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{
		"", " ", "k", `"k"`, `"`, `""`, `"\"\\"`, `"k\`, `"k"x`, "k,k", "k, k", `"k", "k"`, ",", "k\x00", "k\x7f", "é", "\xff",
		strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\\`, 255) + `"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		k, err := idempotency.ParseKey(value)
		if padded, paddedErr := idempotency.ParseKey("\t " + value + " \t"); padded != k || (err == nil) != (paddedErr == nil) {
			t.Errorf("with blanks around it %q is %q, %v; without, %q, %v", value, padded, paddedErr, k, err)
		}
		if err != nil {
			if k != "" {
				t.Errorf("%q is the key %q beside the error %v", value, k, err)
			}
			return
		}
		if len(k) < 1 || len(k) > idempotency.MaxKeyLength || strings.ContainsFunc(k, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			t.Errorf("%q is the key %q, which is none", value, k)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(k) + `"`
		if again, err := idempotency.ParseKey(quoted); again != k || err != nil {
			t.Errorf("%q, quoted as %q, is %q, %v", k, quoted, again, err)
		}
	})
}

// FuzzDecodeReply reads what may stand in a table that others can write to.
func FuzzDecodeReply(f *testing.F) {
	for _, stored := range []*idempotencyv1.StoredReply{
		{},
		{Result: &idempotencyv1.StoredReply_Message{Message: &idempotencyv1.Message{}}},
		{Result: &idempotencyv1.StoredReply_Message{Message: &idempotencyv1.Message{
			TypeName: "charges.v1.CreateChargeResponse", Value: []byte("\x0a\x06\x0a\x04ch_1"),
		}}},
		{Result: &idempotencyv1.StoredReply_Message{Message: &idempotencyv1.Message{
			TypeName: "google.protobuf.Any", Value: []byte("\x0a\x01x"),
		}}},
		{Result: &idempotencyv1.StoredReply_Error{Error: &idempotencyv1.Error{
			Code: 9, Message: []byte("declined"), Metadata: []*idempotencyv1.Metadata{{Name: "x", Values: [][]byte{{0xff}}}},
		}}},
		{Result: &idempotencyv1.StoredReply_Error{Error: &idempotencyv1.Error{Code: -1}}, Header: []*idempotencyv1.Metadata{{}}},
	} {
		encoded, err := proto.Marshal(stored)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, stored []byte) {
		r := newRig(t, holding(store.Completed, stored))
		res := r.do(t.Context(), charge("k", 1), neverRuns(t))
		if res.err != nil {
			res.requireRefused(t, code.Code_INTERNAL, idempotency.ReasonReplyUnreadable)
			return
		}
		if !res.replayed {
			t.Fatal("it is no replay")
		}
		if e := res.reply.Error; e != nil && e.Code == code.Code_OK {
			t.Error("an error has the code OK")
		}
		// A handler that hands on what it was told by another server brings no less.
		again := newRig(t, leased())
		again.mustRun(t, charge("k", 1), res.reply)
		for _, done := range again.store.completed() {
			if readable := done.record.Readable; readable != nil {
				_, _ = readable.MarshalJSON() // may fail, and must not panic
			}
		}
	})
}

// FuzzFingerprint holds two requests against each other: equal where, and only where, their fingerprints are.
func FuzzFingerprint(f *testing.F) {
	f.Add(createCharge, int64(1299), "USD", "tok_ok", "book", createCharge, int64(1299), "USD", "tok_ok", "book")
	f.Add(createCharge, int64(1299), "USD", "tok_ok", "book", refundCharge, int64(1299), "USD", "tok_ok", "book")
	f.Add(createCharge, int64(0), "", "", "", createCharge, int64(-1), "", "", "")
	f.Add("a", int64(0), "b", "", "", "ab", int64(0), "", "b", "")
	f.Add("", int64(0), "\xff", "", "", "", int64(0), "\xfe", "", "")
	f.Fuzz(func(t *testing.T,
		procedureA string, amountA int64, currencyA, tokenA, descriptionA string,
		procedureB string, amountB int64, currencyB, tokenB, descriptionB string,
	) {
		call := func(procedure string, amount int64, currency, token, description string) idempotency.Call {
			return idempotency.Call{Procedure: procedure, Keys: []string{"k"}, Request: &chargesv1.CreateChargeRequest{
				Amount: amount, Currency: currency, CardToken: token, Description: description,
			}}
		}
		a := call(procedureA, amountA, currencyA, tokenA, descriptionA)
		b := call(procedureB, amountB, currencyB, tokenB, descriptionB)
		r := newRig(t, leased())
		first := created("ch_1")
		if !utf8.ValidString(currencyA) || !utf8.ValidString(tokenA) || !utf8.ValidString(descriptionA) {
			r.mustRefuse(t, a, code.Code_INTERNAL, idempotency.ReasonMisconfigured)
			return
		}
		r.mustRun(t, a, first)
		switch {
		case !utf8.ValidString(currencyB) || !utf8.ValidString(tokenB) || !utf8.ValidString(descriptionB):
			r.mustRefuse(t, b, code.Code_INTERNAL, idempotency.ReasonMisconfigured)
		case procedureA == procedureB && proto.Equal(a.Request, b.Request):
			r.mustReplay(t, b, first.Message)
		default:
			r.mustRefuse(t, b, code.Code_FAILED_PRECONDITION, idempotency.ReasonKeyReused)
		}
	})
}

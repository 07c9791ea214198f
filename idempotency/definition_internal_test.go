package idempotency

import (
	"context"
	"crypto/sha512"
	"testing"

	chargesv1 "github.com/connect-idempotency/connect-idempotency-go/gen/charges/v1"
	"github.com/connect-idempotency/connect-idempotency-go/store/memory"
)

// laterDefinition is one as a later version may have it.
func laterDefinition() definition {
	return definition{name: "v2:sha512:",
		input: func(g *Guard, c Call) ([]byte, error) {
			input, err := inputV1(g, c)
			return append(input, "v2"...), err
		},
		digest: func(input []byte) []byte {
			sum := sha512.Sum512(input)
			return sum[:]
		},
	}
}

// A server with a later definition compares the rows of an older one by the older definition, and writes by its own.
func TestALaterDefinitionReadsOlderRows(t *testing.T) {
	t.Parallel()
	rows := memory.New()
	older, err := New(rows, WithSingleScope())
	if err != nil {
		t.Fatal(err)
	}
	newer, err := New(rows, WithSingleScope())
	if err != nil {
		t.Fatal(err)
	}
	newer.definitions = []definition{laterDefinition(), plainV1()}
	do := func(g *Guard, key string, amount int64) (replayed bool, err error) {
		c := Call{Procedure: "/p", Keys: []string{key}, Request: &chargesv1.CreateChargeRequest{Amount: amount}}
		_, replayed, err = g.Do(t.Context(), c, func(context.Context) Reply {
			return Reply{Message: new(chargesv1.CreateChargeResponse)}
		})
		return replayed, err
	}
	for _, step := range []struct {
		what     string
		guard    *Guard
		key      string
		amount   int64
		replayed bool
		reason   string
	}{
		{"the older server's row", older, "k", 1, false, ""},
		{"the newer server reads it", newer, "k", 1, true, ""},
		{"another request is another by the older definition too", newer, "k", 2, false, ReasonKeyReused},
		{"the newer server's row", newer, "l", 1, false, ""},
		{"its own retry", newer, "l", 1, true, ""},
		{"the older server cannot tell, and does not replay", older, "l", 1, false, ReasonKeyReused},
	} {
		replayed, err := do(step.guard, step.key, step.amount)
		if replayed != step.replayed || ReasonOf(err) != step.reason || (err == nil) != (step.reason == "") {
			t.Errorf("%s: replayed %v, %v", step.what, replayed, err)
		}
	}
}

// Package replay tests one property: a replay equals the first answer. Whatever a handler answers, over whichever protocol
// the first call came, a retry gets what a fresh answer over its own protocol would have been, on the wire, but for the
// mark of a replay; it is read from the real table, and the handler does not run.
package replay

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/connect-idempotency/connect-idempotency-go/internal/pgtest"
)

// Random cases are the same in each run; -rapid.seed=0 makes them other ones, -rapid.checks=1000 more of them.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.seed": "20261", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	pgtest.Main(m)
}

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/check"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/fault"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// TestMain makes the test binary a target where the kit starts it as one.
func TestMain(m *testing.M) {
	c, ok, err := target.FromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if ok {
		os.Exit(target.Main(c))
	}
	// The kits wait more than they compute. A -parallel on the command line has the last word.
	if err := flag.Set("test.parallel", "5"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// runKit runs one short round of the kit, with some flags.
func runKit(t *testing.T, args ...string) (r result, out string) {
	t.Helper()
	var text bytes.Buffer
	c, err := parseFlags(append([]string{"-lease", "1s"}, args...), 1, &text)
	if err != nil {
		t.Fatal(text.String())
	}
	dir, err := os.MkdirTemp("", "faultkit-test-") // the database's user cannot reach t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("journals, logs and data are in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	results, err := runIn(t.Context(), c, dir, &text)
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	return results[0], text.String()
}

// Of faults that need no building. Longer runs, of all faults, are for the command.
func TestNothingIsViolatedUnderFaults(t *testing.T) {
	t.Parallel()
	const kinds = "kill-server,kill-database,pause-server"
	for _, m := range []mode{transactional, leased} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			r, out := runKit(t, "-mode", string(m), "-for", "4s", "-servers", "2", "-clients", "6", "-faults", kinds)
			for kind := range strings.SplitSeq(kinds, ",") {
				if r.faults[fault.Kind(kind)] == 0 {
					t.Errorf("no fault %s was done", kind)
				}
			}
			if r.violated() || r.report.Linearizable == 0 || r.report.Outcomes[string(idempotency.Replayed)] == 0 {
				t.Error("the run shows violations, or too little")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// What a run meets is left to chance, so that there may be several until the break shows. One is enough nearly always.
func TestBreakIsFound(t *testing.T) {
	t.Parallel()
	for part, test := range map[target.Break]struct {
		args []string
		want string
	}{
		target.BreakFencing: {
			[]string{"-faults", "pause-server", "-for", "6s", "-servers", "3", "-clients", "24"}, "the store accepted the tokens of 2 attempts",
		},
		target.BreakSavepoint: {[]string{"-faults", "cut", "-for", "2s", "-servers", "2"}, "and has 1 charges instead of 0"},
		target.BreakLock:      {[]string{"-faults", "cut", "-for", "2s", "-servers", "2"}, "the lock did not hold"},
	} {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			var all strings.Builder
			for seed := range 5 {
				r, out := runKit(t, append(test.args, "-break", string(part), "-seed", strconv.Itoa(seed))...)
				all.WriteString(out)
				if slices.ContainsFunc(r.report.Violations, func(v check.Violation) bool { return strings.Contains(v.What, test.want) }) {
					return
				}
			}
			t.Errorf("no violation %q was found\n%s", test.want, &all)
		})
	}
}

func TestRoundsShareTheTime(t *testing.T) {
	for _, test := range []struct {
		all   time.Duration
		modes int
		want  []time.Duration
	}{
		{10 * time.Second, 1, []time.Duration{10 * time.Second}},
		{2 * time.Minute, 2, []time.Duration{time.Minute, time.Minute}},
		{4 * time.Minute, 1, []time.Duration{2 * time.Minute, 2 * time.Minute}},
		{6 * time.Minute, 2, []time.Duration{90 * time.Second, 90 * time.Second, 90 * time.Second, 90 * time.Second}},
	} {
		if got := rounds(test.all, test.modes); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%v in %d modes is %v, not %v", test.all, test.modes, got, test.want)
		}
	}
}

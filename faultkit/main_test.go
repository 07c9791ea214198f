package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/fault"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
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
	os.Exit(m.Run())
}

// withoutClock are the faults that need no building.
const withoutClock = "kill-server,kill-database,outage,terminate,cut,cut-next,stall,pause-server,exhausted-pool"

// runKit runs the kit with some flags.
func runKit(t *testing.T, args ...string) (results []result, out string) {
	t.Helper()
	var text bytes.Buffer
	c, err := parseFlags(args, 1, &text)
	if err != nil {
		t.Fatal(text.String())
	}
	results, err = run(t.Context(), c, &text)
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	return results, text.String()
}

func TestNothingIsViolatedUnderFaults(t *testing.T) {
	for _, m := range []mode{transactional, leased} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			results, out := runKit(t, "-mode", string(m), "-for", "15s", "-faults", withoutClock)
			r := results[0]
			if r.violated() {
				t.Fatal(out)
			}
			t.Log(out)
			kinds, err := fault.ParseKinds(withoutClock)
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range kinds {
				if r.faults[kind] == 0 {
					t.Errorf("no fault %s was done", kind)
				}
			}
			if r.report.Linearizable == 0 || r.report.Outcomes["replayed"] == 0 || r.report.AfterLoss == 0 {
				t.Errorf("the run shows too little: %+v", r.report)
			}
		})
	}
}

// What a run meets is left to chance, so that there may be several until the break shows. One is enough nearly always.
func TestBreakIsFound(t *testing.T) {
	for part, faults := range map[target.Break]string{
		target.BreakFencing:   "pause-server",
		target.BreakSavepoint: "cut",
		target.BreakLock:      "cut",
	} {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			var out string
			for seed := range 5 {
				var results []result
				results, out = runKit(t, "-break", string(part), "-faults", faults, "-for", "8s", "-seed", fmt.Sprint(seed))
				if results[0].violated() {
					return
				}
			}
			t.Errorf("no violation was found\n%s", out)
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

package storetest

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// faultEnv names the fault that TestRun runs the suite on. Tests that must fail cannot run inside one that must pass, so
// the test binary starts itself for each fault.
const faultEnv = "STORETEST_FAULT"

// fault is a broken store, and subtests that must find that it is.
type fault struct {
	name   string
	config Config
	fails  []string // as "Group/subtest"
}

func broken(name string, breakIt func(*faulty), fails ...string) fault {
	return fault{name, onFaulty(breakIt), fails}
}

func brokenDatabase(name string, f faults, fails ...string) fault {
	return fault{name, onDatabase(f), fails}
}

func allFaults() []fault {
	return slices.Concat(modeFaults(), claimFaults(), idFaults(), takeOverFaults(), settleFaults(), recordFaults(),
		lookFaults(), sweepFaults(), renewFaults(), transactionFaults(), effectsFaults())
}

func faultNamed(t *testing.T, name string) fault {
	t.Helper()
	all := allFaults()
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("no fault is called %q", name)
	}
	f := all[i]
	f.config.Patience = 2 * time.Second // for stores that hang
	return f
}

func TestRunFindsFaults(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range allFaults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, "-test.run="+pattern(f.fails), "-test.count=1", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), faultEnv+"="+f.name)
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Fatalf("the suite ended with %v, want exit code 1, of tests that failed:\n%s", err, out)
			}
			for _, name := range f.fails {
				if !strings.Contains(string(out), "--- FAIL: TestRun/"+underscored(name)+" (") {
					t.Errorf("%q did not fail:\n%s", name, out)
				}
			}
		})
	}
}

// pattern is the value of -test.run for subtests.
func pattern(names []string) string {
	var groups, tests []string
	for _, name := range names {
		group, test, _ := strings.Cut(underscored(name), "/")
		groups = append(groups, regexp.QuoteMeta(group))
		tests = append(tests, regexp.QuoteMeta(test))
	}
	return "^TestRun$/^(" + strings.Join(groups, "|") + ")$/^(" + strings.Join(tests, "|") + ")$"
}

// underscored is how package testing writes a name.
func underscored(name string) string { return strings.ReplaceAll(name, " ", "_") }

// TestEverySubtestCanFail holds that there is a fault for each subtest.
func TestEverySubtestCanFail(t *testing.T) {
	found := map[string]bool{}
	for _, f := range allFaults() {
		for _, name := range f.fails {
			found[name] = true
		}
	}
	for _, g := range groups() {
		for _, test := range g.tests {
			if name := g.name + "/" + test.name; !found[name] {
				t.Errorf("no fault makes %q fail", name)
			} else {
				delete(found, name)
			}
		}
	}
	for name := range found {
		t.Errorf("there is no subtest %q", name)
	}
}

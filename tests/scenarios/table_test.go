package scenarios_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

// update writes the table into the README instead of comparing it: go test ./tests/scenarios -run TestScenarios -update
var update = flag.Bool("update", false, "write the README's table of scenarios from this run")

const (
	readme     = "../../README.md"
	tableBegin = "<!-- scenarios: written by go test ./tests/scenarios -run TestScenarios -update -->\n"
	tableEnd   = "<!-- end of scenarios -->"
)

// table is what each adapter has, by its run: a scenario counts for an adapter's protocol where it passed on every store.
type table struct {
	columns   []string // adapter and protocol
	scenarios []string
	failed    map[[2]string]bool // scenario and column
	runs      map[[2]string]int
}

func newTable() *table {
	return &table{failed: make(map[[2]string]bool), runs: make(map[[2]string]int)}
}

func (t *table) add(a adapter, scenario string, passed bool) {
	column := "`" + a.name + "` " + a.protocol
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	if !slices.Contains(t.scenarios, scenario) {
		t.scenarios = append(t.scenarios, scenario)
	}
	at := [2]string{scenario, column}
	t.failed[at] = t.failed[at] || !passed
	t.runs[at]++
}

// String is the table in Markdown, a row for each scenario.
func (t *table) String() string {
	var b strings.Builder
	b.WriteString("| | " + strings.Join(t.columns, " | ") + " |\n")
	b.WriteString(strings.Repeat("| --- ", len(t.columns)+1) + "|\n")
	for _, scenario := range t.scenarios {
		b.WriteString("| " + scenario + " |")
		for _, column := range t.columns {
			at := [2]string{scenario, column}
			mark := "yes"
			if t.failed[at] || t.runs[at] != len(stores()) {
				mark = "no"
			}
			b.WriteString(" " + mark + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// check compares the README's table with the run's, or writes it. A run of some subtests alone has no whole table.
func (t *table) check(test *testing.T) {
	test.Helper()
	if flag.Lookup("test.run").Value.String() != "" && !*update {
		return
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		test.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), tableBegin)
	written, after, ended := strings.Cut(rest, tableEnd)
	switch {
	case !begun || !ended:
		test.Fatalf("the README has no table between %q and %q", tableBegin, tableEnd)
	case *update:
		if err := os.WriteFile(readme, []byte(before+tableBegin+t.String()+tableEnd+after), 0o600); err != nil {
			test.Fatal(err)
		}
	case written != t.String():
		test.Errorf("the README's table is not what this run shows; write it with -update. The run's:\n%s", t)
	}
}

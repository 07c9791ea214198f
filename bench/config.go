package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
)

// config is what the command line says.
type config struct {
	rounds  int // of the base point; other groups have two thirds
	slice   int // calls of each of eight callers in a turn
	rows    int
	only    *regexp.Regexp
	out     string
	profile string
	quick   bool
}

const defaultOut = "docs/benchmarks"

func parseFlags(args []string, stderr io.Writer) (c config, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		//nolint:errcheck // nothing can be done about a usage that cannot be printed
		fmt.Fprint(stderr, "Measures what the guard costs, beside the same work by hand, on a private PostgreSQL; the report goes to standard output.\n"+
			"Run it from the repository's root:\n\n\tgo run ./bench\n\n")
		f.PrintDefaults()
	}
	f.IntVar(&c.rounds, "rounds", 12, "turns of each variant at the base point; elsewhere two thirds of them")
	f.IntVar(&c.slice, "slice", 60, "calls of each of eight callers in a turn of first calls; more callers make fewer calls each, and faster calls are more")
	f.IntVar(&c.rows, "rows", 0, "also measure a table that holds so many rows; 10000000 take about 6 GB of disk and minutes to load")
	f.StringVar(&c.out, "out", "", "`folder` for README.md and the plots (default "+defaultOut+
		"; with -quick nothing is written by default, with -only nothing at all)")
	f.StringVar(&c.profile, "profile", "", "`folder` for a CPU profile of each variant, taken in one more turn that is not counted")
	f.BoolVar(&c.quick, "quick", false, "under a minute: few rounds, short slices; for a look, not for numbers")
	only := f.String("only", "", "measure the variants alone whose names match the `regexp`, and leave out what is no variant")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.quick {
		c.rounds, c.slice = min(c.rounds, 3), min(c.slice, 12)
	}
	if c.out == "" && !c.quick && *only == "" {
		c.out = defaultOut
	}
	if c.only, err = regexp.Compile(*only); err != nil {
		return c, fmt.Errorf("-only: %w", err)
	}
	if c.out != "" && !c.all() {
		return c, errors.New("-only measures a part, and -out is for the whole: choose one of them")
	}
	if c.rounds < 1 || c.slice < 1 || c.rows < 0 || f.NArg() > 0 {
		return c, errors.New("-rounds and -slice are at least 1, -rows at least 0, and there are no arguments")
	}
	return c, nil
}

// elsewhere is the number of rounds of the groups beside the base point.
func (c config) elsewhere() int {
	if c.quick {
		return 1
	}
	return max(1, c.rounds*2/3)
}

// callers are the numbers of callers that are compared.
func (c config) callers() []int {
	if c.quick {
		return []int{1, baseCallers, 32}
	}
	return []int{1, baseCallers, 32, 128}
}

// all says whether everything is to be measured, and not some variants alone.
func (c config) all() bool { return c.only.String() == "" }

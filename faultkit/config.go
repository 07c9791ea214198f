package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/fault"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

// config is what the flags say.
type config struct {
	time    time.Duration // under faults, of all rounds
	seed    uint64
	modes   []mode
	servers int
	clients int
	lease   time.Duration
	kinds   []fault.Kind
	breaks  target.Break
	bouncer string // PgBouncer's program; "" has none
	without error  // why there is none
	keep    bool
}

// mode is how the targets hold a claim.
type mode string

const (
	transactional mode = "transactional"
	leased        mode = "leased"
)

const (
	minLease = time.Second
	maxLease = 10 * time.Second
)

// parseFlags reads the command line. An error has been printed, with the usage, on out.
func parseFlags(args []string, seed uint64, out io.Writer) (config, error) {
	var c config
	var modes, kinds, bouncer, breaks string
	fs := flag.NewFlagSet("faultkit", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.DurationVar(&c.time, "for", 2*time.Minute, "how long to do harm, in all: modes share it")
	fs.Uint64Var(&c.seed, "seed", seed, "`number` that the faults and their order follow from (default: another one each time)")
	fs.StringVar(&modes, "mode", "both", "transactional, leased, or both, in turn (`mode`)")
	fs.IntVar(&c.servers, "servers", 4, "`number` of server processes, 1 to 16")
	fs.IntVar(&c.clients, "clients", 12, "`number` of clients, 1 to 256")
	fs.DurationVar(&c.lease, "lease", 1500*time.Millisecond, "lease on a key, 1s to 10s")
	fs.StringVar(&kinds, "faults", "", "kinds of faults to choose from, with commas (default: all)\n"+joined(fault.Kinds(), ", "))
	fs.StringVar(&bouncer, "pgbouncer", "auto", "have every second server go through PgBouncer: on, off, or auto, where it is installed (`when`)")
	fs.StringVar(&breaks, "break", "", "take away a `part` of the library's protection, to see that it is found out:\n"+
		"fencing (leased), savepoint or lock (transactional)")
	fs.BoolVar(&c.keep, "keep", false, "keep the folder with journals, logs and data; after a violation it is kept anyway")
	if err := fs.Parse(args); err != nil {
		return config{}, err
	}
	c.breaks = target.Break(breaks)
	if err := c.complete(fs.Args(), modes, kinds, bouncer); err != nil {
		fmt.Fprintln(out, err) //nolint:errcheck // as package flag does it
		fs.Usage()
		return config{}, err
	}
	return c, nil
}

// complete checks what the flags say, and makes of it what it means.
func (c *config) complete(rest []string, modes, kinds, bouncer string) (err error) {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case c.time < time.Second:
		return errors.New("-for must be at least 1s")
	case c.servers < 1 || c.servers > 16:
		return errors.New("-servers must be 1 to 16")
	case c.clients < 1 || c.clients > 256:
		return errors.New("-clients must be 1 to 256")
	case c.lease < minLease || c.lease > maxLease:
		return fmt.Errorf("-lease must be %v to %v", minLease, maxLease)
	}
	c.kinds = fault.Kinds()
	if kinds != "" {
		if c.kinds, err = fault.ParseKinds(kinds); err != nil {
			return fmt.Errorf("-faults: %w", err)
		}
	}
	if err := c.setModes(modes); err != nil {
		return err
	}
	return c.findBouncer(bouncer)
}

func (c *config) setModes(text string) error {
	switch mode(text) {
	case transactional, leased:
		c.modes = []mode{mode(text)}
	case "both":
		c.modes = []mode{transactional, leased}
	default:
		return fmt.Errorf("-mode must be transactional, leased or both, and not %q", text)
	}
	var breakable mode
	switch c.breaks {
	case target.BreakNothing:
		return nil
	case target.BreakFencing:
		breakable = leased
	case target.BreakSavepoint, target.BreakLock:
		breakable = transactional
	default:
		return fmt.Errorf("-break must be fencing, savepoint or lock, and not %q", c.breaks)
	}
	if !slices.Contains(c.modes, breakable) {
		return fmt.Errorf("-break %s needs -mode %s", c.breaks, breakable)
	}
	c.modes = []mode{breakable}
	return nil
}

func (c *config) findBouncer(when string) error {
	switch when {
	case "off":
		c.without = errors.New("-pgbouncer is off")
		return nil
	case "on", "auto":
		c.bouncer, c.without = rig.FindBouncer()
		if c.without != nil && when == "on" {
			return fmt.Errorf("-pgbouncer: %w", c.without)
		}
		return nil
	default:
		return fmt.Errorf("-pgbouncer must be on, off or auto, and not %q", when)
	}
}

func joined[S ~string](parts []S, with string) string {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = string(part)
	}
	return strings.Join(texts, with)
}

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// config is what the flags and the environment say.
type config struct {
	addr           string
	databaseURL    string // "" asks for a private server
	databaseSource string // what databaseURL came from
	dataDir        string // "" means the default
	mode           mode
	requireKey     bool
	ttl            time.Duration
	sweepEvery     time.Duration // 0: never
	given          map[string]bool
}

// mode is how a claim is held.
type mode string

const (
	transactional mode = "transactional"
	leased        mode = "leased"
)

// UnmarshalText is for package flag.
func (m *mode) UnmarshalText(text []byte) error {
	switch got := mode(text); got {
	case transactional, leased:
		*m = got
		return nil
	default:
		return fmt.Errorf("must be %s or %s", transactional, leased)
	}
}

// MarshalText is for package flag.
func (m mode) MarshalText() ([]byte, error) { return []byte(m), nil }

// parseFlags reads the command line. An error has been printed, with the usage, on out.
func parseFlags(args []string, getenv func(string) string, out io.Writer) (config, error) {
	c := config{given: make(map[string]bool)}
	fs := flag.NewFlagSet("chargeserver", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&c.addr, "addr", "localhost:8080", "`address` to listen on; port 0 takes a free one")
	fs.StringVar(&c.databaseURL, "database-url", "",
		"`URL` of the PostgreSQL database to use, in which the tables charges and idempotency_keys are made\n"+
			"(default: the environment variable DATABASE_URL, else a private server of its own)")
	fs.StringVar(&c.dataDir, "data-dir", "",
		"`folder` that keeps the private server's data (default: in your home; for root, in /var/lib)")
	fs.TextVar(&c.mode, "mode", transactional,
		"how PostgreSQL keeps keys (`mode`):\n"+
			"transactional: the charge and the reply to it commit in one transaction;\n"+
			"leased: the key is claimed before the call runs, and the reply is kept after it")
	fs.BoolVar(&c.requireKey, "require-key", false, "refuse CreateCharge and RefundCharge without an idempotency key")
	fs.DurationVar(&c.ttl, "ttl", idempotency.DefaultTTL, "how long a key is remembered, at least 1m")
	fs.DurationVar(&c.sweepEvery, "sweep-every", time.Minute, "time between two sweeps of expired keys; 0 never sweeps")
	if err := fs.Parse(args); err != nil {
		return config{}, err
	}
	if err := c.check(fs.Args()); err != nil {
		fmt.Fprintln(out, err) //nolint:errcheck // as package flag does it
		fs.Usage()
		return config{}, err
	}
	fs.Visit(func(f *flag.Flag) { c.given[f.Name] = true })
	c.databaseSource = "-database-url"
	if c.databaseURL == "" {
		c.databaseURL, c.databaseSource = getenv("DATABASE_URL"), "DATABASE_URL"
	}
	return c, nil
}

func (c *config) check(rest []string) error {
	switch least := 2 * idempotency.DefaultLease; {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case c.ttl < least:
		return fmt.Errorf("invalid value %v for flag -ttl: must be at least %v, two leases", c.ttl, least)
	case c.sweepEvery < 0:
		return errors.New("invalid value for flag -sweep-every: must not be less than 0")
	default:
		return nil
	}
}

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func TestFlagsHaveDefaults(t *testing.T) {
	t.Parallel()
	c := mustParse(t)
	if c.addr != "localhost:8080" || c.databaseURL != "" || c.dataDir != "" || c.mode != transactional || c.requireKey ||
		c.ttl != 24*time.Hour || c.sweepEvery != time.Minute || len(c.given) != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestDatabaseURLComesFromTheFlagBeforeTheEnvironment(t *testing.T) {
	t.Parallel()
	environment := func(name string) string { return map[string]string{"DATABASE_URL": "postgres://environment"}[name] }
	for _, c := range []struct {
		args        []string
		url, source string
	}{
		{nil, "postgres://environment", "DATABASE_URL"},
		{[]string{"-database-url", "postgres://flag"}, "postgres://flag", "-database-url"},
	} {
		got, err := parseFlags(c.args, environment, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got.databaseURL != c.url || got.databaseSource != c.source {
			t.Errorf("%v: got %s of %s, want %s of %s", c.args, got.databaseURL, got.databaseSource, c.url, c.source)
		}
	}
}

func TestFlagsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"-mode both":       `invalid value "both" for flag -mode: must be transactional or leased`,
		"-ttl 59s":         "invalid value 59s for flag -ttl: must be at least 1m0s",
		"-sweep-every -1s": "invalid value for flag -sweep-every: must not be less than 0",
		"leased":           `unexpected argument "leased"`,
	} {
		var out bytes.Buffer
		_, err := parseFlags(strings.Fields(args), func(string) string { return "" }, &out)
		if err == nil {
			t.Errorf("%s: taken", args)
		}
		if !strings.HasPrefix(out.String(), says) || !strings.Contains(out.String(), "Usage of chargeserver:") {
			t.Errorf("%s: printed %s", args, out.String())
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	_, err := parseFlags([]string{"-help"}, func(string) string { return "" }, &out)
	if !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"-addr", "-database-url", "-data-dir", "-mode", "-require-key", "-ttl", "-sweep-every"} {
		if !strings.Contains(out.String(), "  "+name+" ") && !strings.Contains(out.String(), "  "+name+"\n") {
			t.Errorf("%s is not in the help:\n%s", name, out.String())
		}
	}
}

// Command faultkit does harm to servers that use this library, and checks that nothing was lost, nothing was done twice
// and nobody is stuck:
//
//	go run ./faultkit -for 2m
//
// It starts a private PostgreSQL, a PgBouncer where one is installed, and some server processes, each behind a
// proxy of its own to the database. Clients call with a key, and again with the same key, until they have an answer.
// Meanwhile there is a fault every second: a server or the database is killed, connections are cut or stalled, a server is
// paused past its lease, its pool is at its limit, its clock is wrong by ten minutes. When the faults have ended, all that
// the servers and clients wrote down is checked against the tables; what is checked stands in package check.
//
// It exits with 0 where all was right, with 1 after a violation, and with 2 where it could not run. Its report says what it
// did not cover, such as PgBouncer where none is installed; ci.sh installs it on Debian. The seed that it prints
// repeats the faults and their order; what they meet differs from run to run. Everything is on this machine's loopback
// device, and ends with the command.
//
// With -break a part of the library's protection is taken away, by changing its statements on their way to the database, and
// violations must be found. It exits with 1 then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/fault"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/rig"
	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

func main() { os.Exit(program()) }

func program() int {
	if c, ok, err := target.FromEnvironment(); err != nil {
		fmt.Fprintln(os.Stderr, "faultkit:", err)
		return 2
	} else if ok {
		return target.Main(c)
	}
	ctx, reset := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer reset()
	c, err := parseFlags(os.Args[1:], uint64(rand.Uint32()), os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // it has been printed
	}
	results, err := run(ctx, c, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "faultkit:", err)
		return 2
	case slices.ContainsFunc(results, result.violated):
		return 1
	default:
		return 0
	}
}

// longestRound bounds a round, and with it what has to be kept in memory to check it.
const longestRound = 2 * time.Minute

// run does all that the flags ask for in a folder of its own, which stays where there is something to look at.
func run(ctx context.Context, c config, out io.Writer) (results []result, err error) {
	dir, err := os.MkdirTemp("", "faultkit-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if c.keep || err != nil || slices.ContainsFunc(results, result.violated) {
			_, printErr := fmt.Fprintf(out, "journals, logs and data are in %s\n", dir)
			err = errors.Join(err, printErr)
			return
		}
		err = os.RemoveAll(dir)
	}()
	return runIn(ctx, c, dir, out)
}

// runIn runs rounds, each in a world of its own, until their time is over.
func runIn(ctx context.Context, c config, dir string, out io.Writer) (results []result, err error) {
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the database may run as another user
		return nil, err
	}
	program, err := targetProgram(ctx, c, dir, out)
	if err != nil {
		return nil, err
	}
	for n, length := range rounds(c.time, len(c.modes)) {
		r := round{config: c, mode: c.modes[n%len(c.modes)], length: length, program: program, out: out}
		r.seed = c.seed + uint64(n/len(c.modes))
		if r.dir, err = rig.MakeDir(dir, fmt.Sprintf("%d-%s", n+1, r.mode)); err != nil {
			return results, err
		}
		found, err := r.run(ctx)
		if err != nil {
			return results, err
		}
		results = append(results, found)
		if !found.violated() && !c.keep {
			if err := os.RemoveAll(r.dir); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// rounds splits the time among rounds, as many for each mode.
func rounds(all time.Duration, modes int) []time.Duration {
	each := int((all + longestRound*time.Duration(modes) - 1) / (longestRound * time.Duration(modes)))
	lengths := make([]time.Duration, each*modes)
	for i := range lengths {
		lengths[i] = all / time.Duration(len(lengths))
	}
	return lengths
}

// targetProgram is the binary that the servers run: our own, or, where their clocks are to be wrong, one that can do so.
func targetProgram(ctx context.Context, c config, dir string, out io.Writer) (string, error) {
	if !slices.Contains(c.kinds, fault.WrongClock) {
		return os.Executable()
	}
	if _, err := fmt.Fprintln(out, "building servers whose clocks can be wrong; the first time takes a minute or two"); err != nil {
		return "", err
	}
	return rig.BuildWrongClock(ctx, dir, raceDetector)
}

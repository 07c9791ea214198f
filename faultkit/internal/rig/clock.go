package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/connect-idempotency/connect-idempotency-go/faultkit/internal/target"
)

// commandPackage is the kit's command, which is a target too.
const commandPackage = "github.com/connect-idempotency/connect-idempotency-go/faultkit"

// BuildWrongClock builds the kit's command, in the folder dir, with a standard library whose time.Now can be set wrong at
// run time. Neither faketime, which a static binary does not load, nor a time namespace, which leaves the wall clock alone,
// does that.
//
// It needs the go command, and to be called within the repository. The first build takes a minute or two, since all of the
// standard library that tells the time is built anew; later ones find it in Go's cache.
func BuildWrongClock(ctx context.Context, dir string, race bool) (program string, err error) {
	root, err := goOutput(ctx, "env", "GOROOT")
	if err != nil {
		return "", err
	}
	overlay, err := clockOverlay(filepath.Join(strings.TrimSpace(root), "src", "time"), dir)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "faultkit-wrong-clock")
	args := []string{"build", "-overlay", overlay, "-tags", target.ClockTag, "-o", program}
	if race {
		args = append(args, "-race")
	}
	_, err = goOutput(ctx, append(args, commandPackage)...)
	return program, err
}

func goOutput(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return string(out), nil
}

const (
	// clockRead is the line of time.Now that reads the clock, and clockOffset what follows it in the overlay. The
	// monotonic reading, by which timers and durations go, stays right, as it does on a machine whose clock was set.
	clockRead   = "\tsec, nsec, mono := runtimeNow()\n"
	clockOffset = "\tsec += faultkitOffset.Load()\n"

	offsetSource = `package time

import "sync/atomic"

var faultkitOffset atomic.Int64

// SetClockOffset makes Now wrong by d, in whole seconds.
func SetClockOffset(d Duration) { faultkitOffset.Store(int64(d / Second)) }
`
)

// clockOverlay writes an overlay for the package time, whose sources are in src, and returns the file to give to go build.
func clockOverlay(src, dir string) (string, error) {
	original := filepath.Join(src, "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), clockRead); n != 1 {
		return "", fmt.Errorf("%s reads the clock in %d places that this kit knows, not in one; use -faults without clock", original, n)
	}
	patched := filepath.Join(dir, "time.go.txt")
	offset := filepath.Join(dir, "offset.go.txt")
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{
		original:                                 patched,
		filepath.Join(src, "faultkit_offset.go"): offset,
	}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(
		os.WriteFile(patched, []byte(strings.Replace(string(text), clockRead, clockRead+clockOffset, 1)), 0o600),
		os.WriteFile(offset, []byte(offsetSource), 0o600),
		os.WriteFile(overlay, replace, 0o600))
}

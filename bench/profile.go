package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
)

// profileFile is the name of a variant's profile. The base point's label says no more than its group.
func profileFile(dir, group, label, variant string) string {
	parts := []string{group, label, variant}
	if label == group {
		parts = []string{group, variant}
	}
	return filepath.Join(dir, strings.ReplaceAll(strings.Join(parts, "-"), " ", "-")+".pprof")
}

// profile is one turn, as long as those of all rounds, under the CPU profiler.
func profile(ctx context.Context, t turn, rounds int, name string) (err error) {
	each := t.stage.calls * t.variant.times * rounds
	uncounted := max(1, each/leadIn)
	leave, err := t.stage.enter(ctx, t.variant, t.stage.callers*(uncounted+each))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if _, err := calls(ctx, t.variant, t.stage.callers, uncounted); err != nil {
		return err
	}
	file, err := os.Create(name) //nolint:gosec // the folder is the caller's
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	_, err = calls(ctx, t.variant, t.stage.callers, each)
	return err
}

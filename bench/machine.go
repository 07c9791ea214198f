package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine is where a run was made, as far as it matters for its numbers.
type machine struct {
	CPUs                         int
	Model, System                string
	Go, PostgreSQL, Pgx, Connect string
}

func thisMachine(postgreSQL string) machine {
	m := machine{
		CPUs: runtime.NumCPU(), Model: cpuModel(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: strings.TrimPrefix(runtime.Version(), "go"),
		PostgreSQL: postgreSQL,
	}
	m.Pgx, m.Connect = moduleVersion("github.com/jackc/pgx/v5"), moduleVersion("connectrpc.com/connect")
	return m
}

// cpuModel is what Linux calls the processor, and the architecture elsewhere.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close() //nolint:errcheck // nothing was written
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, model, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "unknown"
}

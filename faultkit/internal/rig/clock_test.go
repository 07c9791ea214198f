package rig

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The whole is built where the command runs with the fault clock; this says early when a new Go reads the clock elsewhere.
func TestOverlayFitsThisGo(t *testing.T) {
	root, err := goOutput(t.Context(), "env", "GOROOT")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := clockOverlay(filepath.Join(strings.TrimSpace(root), "src", "time"), dir)
	if err != nil {
		t.Fatalf("%s: %v", runtime.Version(), err)
	}
	text, err := os.ReadFile(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `time.go"`) {
		t.Errorf("the overlay is %s", text)
	}
}

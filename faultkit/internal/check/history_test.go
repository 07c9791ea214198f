package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHalfALineIsPassedOver(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal")
	text := `{"at":1,"kind":"invoke","op":1,"call":"claim","key":"k","token":"a"}` + "\n" + `{"at":2,"kind":"ret`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := readHistory([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	if lines := h.describe("k"); len(lines) != 1 || !strings.Contains(lines[0], "to never: claim by a → unknown") {
		t.Errorf("the history is %q", lines)
	}
}

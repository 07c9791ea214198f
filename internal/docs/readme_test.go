// Package docs has the tests of what the documentation claims.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// Every Go block of the README is part of a compiled file.
func TestGoBlocksAreCompiled(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlocks(string(readme))
	if len(blocks) == 0 {
		t.Fatal("the README has no Go block")
	}
	sources := goFiles(t)
	for _, block := range blocks {
		if !strings.Contains(sources, plain(block)) {
			t.Errorf("no Go file has this block of the README:\n%s", block)
		}
	}
}

func goBlocks(markdown string) (blocks []string) {
	for _, part := range strings.Split(markdown, "```go\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// plain leaves out how lines are indented.
func plain(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// goFiles joins all Go files of the repository.
func goFiles(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.WriteString(plain(string(text)) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

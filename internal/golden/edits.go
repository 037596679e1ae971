package golden

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// Edit is a text to be rewritten with small changes. Copies of the text are measured on it.
type Edit struct {
	Name          string
	Instruction   string
	Before, After string
}

// Prompt is the instruction with the text.
func (e *Edit) Prompt() string { return e.Instruction + "\n\n```\n" + e.Before + "```\n" }

// Answer is the text with the changes.
func (e *Edit) Answer() string { return "```\n" + e.After + "```\n" }

// Edits reads the edits. Each is a file: the instruction in the first line, then a line for every change, which
// applies to all occurrences, then the text after a line of three dashes.
func Edits(tb testing.TB) []Edit {
	tb.Helper()
	dir := filepath.Join(root(tb), "internal", "golden", "testdata", "edits")
	files, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	list := make([]Edit, len(files))
	for i, f := range files {
		list[i] = readEdit(tb, filepath.Join(dir, f.Name()))
	}
	return list
}

func readEdit(tb testing.TB, path string) Edit {
	tb.Helper()
	head, text, _ := strings.Cut(string(filetest.Read(tb, path)), "\n---\n")
	lines := strings.Split(head, "\n")
	e := Edit{Name: strings.TrimSuffix(filepath.Base(path), ".txt"), Instruction: lines[0], Before: text, After: text}
	for _, line := range lines[1:] {
		from, to, _ := strings.Cut(line, " -> ")
		old, err := strconv.Unquote(from)
		if err != nil || !strings.Contains(e.After, old) {
			tb.Fatalf("golden: %s: the text does not contain %s", path, from)
		}
		now, err := strconv.Unquote(to)
		if err != nil {
			tb.Fatalf("golden: %s: %s is no quoted text", path, to)
		}
		e.After = strings.ReplaceAll(e.After, old, now)
	}
	return e
}

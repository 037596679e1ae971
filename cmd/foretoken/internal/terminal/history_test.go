package terminal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// Lines after one that is too long are not read, and must not be lost.
func TestHistoryKeepsWhatItCannotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	var text strings.Builder
	for i := range maxHistory {
		fmt.Fprintln(&text, i)
	}
	fmt.Fprintf(&text, "%s\nthe last\n", strings.Repeat("x", 2<<20))
	filetest.Write(t, file, text.String())
	openHistory(file)
	data, err := os.ReadFile(file)
	if err != nil || string(data) != text.String() {
		t.Errorf("%d bytes are left of %d, %v", len(data), text.Len(), err)
	}
}

func TestHistoryOutlivesTheProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deep", "history")
	h := openHistory(file)
	for _, line := range []string{"one", "two", "two", "", "  ", "three"} {
		h.Add(line)
	}
	h = openHistory(file)
	if h.Len() != 3 || h.At(0) != "three" || h.At(2) != "one" {
		t.Errorf("read back: %q", h.lines)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	for i := range 2 * maxHistory {
		h.Add(strconv.Itoa(i))
	}
	if h.Len() != maxHistory || h.At(0) != strconv.Itoa(2*maxHistory-1) {
		t.Errorf("%d lines, the last %q", h.Len(), h.At(0))
	}
	openHistory(file)
	data, err := os.ReadFile(file)
	if err != nil || bytes.Count(data, []byte("\n")) != maxHistory {
		t.Errorf("the file has %d lines, %v", bytes.Count(data, []byte("\n")), err)
	}
	if h = openHistory(""); h.Len() != 0 {
		t.Errorf("without a file: %q", h.lines)
	}
	h.Add("kept in memory")
	if h.Len() != 1 {
		t.Error("without a file nothing is remembered")
	}
}

func TestHistoryFileFollowsTheEnvironment(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if got := historyFile(); got != filepath.FromSlash("/state/foretoken/history") {
		t.Error(got)
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/home/me")
	if got := historyFile(); got != filepath.FromSlash("/home/me/.local/state/foretoken/history") {
		t.Error(got)
	}
}

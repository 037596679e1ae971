package terminal

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

// maxHistory is how many lines are remembered.
const maxHistory = 500

// history remembers the lines typed in chats, across processes if it has a
// file. It implements term.History. A chat works without the file if it cannot be read
// or written.
type history struct {
	lines []string // the newest last
	file  string   // empty: none
}

// openHistory reads the history kept in file; without a file it is empty.
func openHistory(file string) *history {
	h := &history{file: file}
	f, err := os.Open(file)
	if err != nil {
		return h
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing to lose
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		h.push(console.Printable(s.Text()))
	}
	if s.Err() == nil && len(h.lines) == maxHistory { // a history that was not read whole is not written again
		h.rewrite()
	}
	return h
}

// historyFile is the file of this user's history. It is empty if there is no folder for it.
func historyFile() string {
	dir := load.StateFolder()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "history")
}

// Add remembers a line, unless it is empty or the same as the one before.
func (h *history) Add(line string) {
	if !h.push(line) || h.file == "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(h.file), 0o700); err != nil {
		return
	}
	f, err := os.OpenFile(h.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// push adds a line in memory, and reports whether it did.
func (h *history) push(line string) bool {
	n := len(h.lines)
	if strings.TrimSpace(line) == "" || n > 0 && h.lines[n-1] == line {
		return false
	}
	if n == maxHistory {
		h.lines = slices.Delete(h.lines, 0, 1)
	}
	h.lines = append(h.lines, line)
	return true
}

// rewrite keeps the file from growing for ever.
func (h *history) rewrite() {
	_ = os.WriteFile(h.file, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
}

// Len is the number of lines.
func (h *history) Len() int { return len(h.lines) }

// At is the line that was added as the i-th last.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

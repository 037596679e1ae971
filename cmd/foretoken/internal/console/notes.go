package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// Notes is the log of a command: it keeps the messages of the packages below, to be shown
// as plain lines once the progress bar is gone, and in JSON output. It is a slog.Handler.
type Notes struct {
	level slog.Level
	attrs string // of every line, written out
	kept  *keptNotes
}

// keptNotes is shared by a log and those derived from it.
type keptNotes struct {
	mu       sync.Mutex // protects what follows
	lines    []string   // not shown yet
	warnings []string   // all of them
}

// NewNotes returns an empty log for warnings, and for reports too if verbose.
func NewNotes(verbose bool) *Notes {
	n := &Notes{level: slog.LevelWarn, kept: &keptNotes{}}
	if verbose {
		n.level = slog.LevelInfo
	}
	return n
}

// Enabled implements slog.Handler.
func (n *Notes) Enabled(_ context.Context, l slog.Level) bool { return l >= n.level }

// Handle implements slog.Handler.
func (n *Notes) Handle(_ context.Context, r slog.Record) error {
	var attrs []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	line := r.Message + n.attrs + writeAttrs(attrs)
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		n.kept.warnings = append(n.kept.warnings, line)
		line = "warning: " + line
	}
	n.kept.lines = append(n.kept.lines, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (n *Notes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Notes{level: n.level, attrs: n.attrs + writeAttrs(attrs), kept: n.kept}
}

// WithGroup implements slog.Handler. Groups are not shown: a line is for people.
func (n *Notes) WithGroup(string) slog.Handler { return n }

// Show writes the lines that were not shown yet.
func (n *Notes) Show(w io.Writer) {
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	for _, l := range n.kept.lines {
		Tell(w, "foretoken: "+Printable(l)+"\n")
	}
	n.kept.lines = nil
}

// Warn adds a warning of the command itself.
func (n *Notes) Warn(format string, args ...any) { slog.New(n).Warn(fmt.Sprintf(format, args...)) }

// Warnings lists all warnings so far.
func (n *Notes) Warnings() []string {
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	return n.kept.warnings
}

// writeAttrs writes attributes as name=value, each with a space before it.
func writeAttrs(attrs []slog.Attr) string {
	var b strings.Builder
	for _, a := range attrs {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
	}
	return b.String()
}

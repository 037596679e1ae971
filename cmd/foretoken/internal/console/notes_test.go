package console

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestNotesAreLines(t *testing.T) {
	var out bytes.Buffer
	n := NewNotes(false)
	log := slog.New(n).With("file", "a.json").WithGroup("g")
	log.Info("only with --verbose")
	log.Warn("odd\x1b[2J", "size", 5)
	n.Show(&out)
	n.Show(&out)
	if want := "foretoken: warning: odd[2J file=a.json size=5\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
	if len(n.Warnings()) != 1 {
		t.Errorf("warnings %q", n.Warnings())
	}
	n = NewNotes(true)
	slog.New(n).Info("for the curious")
	out.Reset()
	n.Show(&out)
	if out.String() != "foretoken: for the curious\n" || len(n.Warnings()) != 0 {
		t.Errorf("verbose: %q, warnings %q", &out, n.Warnings())
	}
}

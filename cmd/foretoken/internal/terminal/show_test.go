package terminal

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/internal/dialogue"
)

func TestShownSeparatesReasoning(t *testing.T) {
	const text = "I see.\n</think>\n\nHi \x1b[31mthere.\n"
	for name, c := range map[string]struct {
		terminal, plain, hide bool
		want                  string
	}{
		"pipe":           {false, false, false, "<think>\nI see.\n</think>\n\nHi \x1b[31mthere.\n"},
		"pipe hidden":    {false, false, true, "Hi \x1b[31mthere.\n"},
		"terminal":       {true, false, false, "\x1b[2mI see.\x1b[0m\n\nHi [31mthere.\n"},
		"plain terminal": {true, true, false, "<think>\nI see.\n</think>\n\nHi [31mthere.\n"},
	} {
		for size := 1; size <= len(text); size += 6 {
			var out bytes.Buffer
			show := newShown(&console.Console{Out: &out, OutTerminal: c.terminal, Plain: c.plain}, c.hide)
			parser := dialogue.NewParser(dialogue.ParserOptions{Thinking: true})
			for piece := range slices.Chunk([]byte(text), size) {
				if err := show.write(foretoken.Piece{Events: parser.Write(string(piece))}); err != nil {
					t.Fatal(err)
				}
			}
			if err := show.write(foretoken.Piece{Events: parser.Close()}); err != nil {
				t.Fatal(err)
			}
			if err := show.end(); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(out.String(), "\x1b[0m\x1b[2m", "")
			if got != c.want {
				t.Errorf("%s, pieces of %d: got %q, want %q", name, size, got, c.want)
			}
			m := show.message()
			if content, _ := m.Content.Text(); content != "Hi \x1b[31mthere.\n" || *m.ReasoningContent != "I see." {
				t.Errorf("%s: the message is %+v", name, m)
			}
		}
	}
}

func TestShownEndsItsLine(t *testing.T) {
	for _, c := range []struct {
		text     string
		thinking bool
		want     string
	}{
		{"", false, ""},
		{"Hi", false, "Hi\n"},
		{"Hi\n", false, "Hi\n"},
		{"I was thi", true, "<think>\nI was thi\n</think>\n"},
	} {
		var out bytes.Buffer
		show := newShown(&console.Console{Out: &out}, false)
		parser := dialogue.NewParser(dialogue.ParserOptions{Thinking: c.thinking})
		events := append(parser.Write(c.text), parser.Close()...)
		if err := errors.Join(show.write(foretoken.Piece{Events: events}), show.end()); err != nil || out.String() != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, &out, err, c.want)
		}
	}
}

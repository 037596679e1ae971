package foretoken

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/prompt"
)

// longTalk is a conversation of about ten thousand tokens: a system prompt, and turns with
// pieces of a file in them.
func longTalk(b *testing.B, m *Model, pattern string) *Conversation {
	b.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		b.Fatal(pattern, err)
	}
	var all strings.Builder
	for _, name := range names {
		text := filetest.Read(b, name)
		all.Write(text)
	}
	c := &Conversation{Messages: []chat.Message{{Role: "system", Content: chat.Text("You are helpful.")}}}
	for rest, n := all.String(), 0; n < 10_000; {
		if rest == "" {
			rest = all.String()
		}
		piece := rest[:min(2000, len(rest))]
		rest = rest[len(piece):]
		n += len(m.tok.Encode(piece)) + 20
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: chat.Text(piece)}, chat.Message{Role: "assistant", Content: chat.Text("I see. What about it?")})
	}
	c.Messages = append(c.Messages, chat.Message{Role: "user", Content: chat.Text("Go on.")})
	return c
}

// BenchmarkTextIn measures the steps before the engine for a conversation of ten thousand tokens: template,
// tokenizer, ends of turns.
func BenchmarkTextIn(b *testing.B) {
	source := filetest.Read(b, "internal/dialogue/testdata/calls_xml.jinja")
	m := openTemplate(b, string(source), Options{})
	for _, kind := range []struct{ name, files string }{{"prose", "internal/tokenizer/testdata/english.txt"}, {"code", "internal/engine/*.go"}} {
		c := longTalk(b, m, kind.files)
		r, _, err := m.text.Render((*prompt.Conversation)(c), true)
		if err != nil {
			b.Fatal(err)
		}
		ids, _ := m.tok.EncodeWithin(r.Text, r.Trusted, 0)
		b.Run(fmt.Sprintf("text=%s/part=render", kind.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := m.text.Render((*prompt.Conversation)(c), true); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("text=%s/part=encode", kind.name), func(b *testing.B) {
			b.SetBytes(int64(len(r.Text)))
			b.ReportAllocs()
			for b.Loop() {
				m.tok.EncodeWithin(r.Text, r.Trusted, 0)
			}
			b.ReportMetric(float64(len(ids)), "tokens")
		})
		b.Run(fmt.Sprintf("text=%s/part=boundaries", kind.name), func(b *testing.B) {
			p := &Prompt{IDs: ids, Chat: true}
			for b.Loop() {
				m.text.Boundaries(p.inner())
			}
		})
	}
}

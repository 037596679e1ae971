package terminal

import (
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/internal/sampling"
)

func TestTemplateGetsItsVariables(t *testing.T) {
	s := openTinyWith(t, map[string]string{"chat_template.jinja": "", "tokenizer_config.json": `{"chat_template": [
		{"name": "default", "template": "{{ enable_thinking is defined }} {{ enable_thinking }} {{ effort }} {{ messages[0].content }}{{ tools|length if tools }}<think>"},
		{"name": "tool_use", "template": "with {{ tools|length }}"}]}`})
	for _, c := range []struct {
		args []string
		json string // messages
		want string
	}{
		{nil, `[{"role":"user","content":"a"}]`, "False   a<think>"},
		{[]string{"--enable-thinking"}, `[{"role":"user","content":"a"}]`, "True True  a<think>"},
		{[]string{"--enable-thinking=false"}, `[{"role":"user","content":"a"}]`, "True False  a<think>"},
		{[]string{"--no-thinking"}, `[{"role":"user","content":"a"}]`, "True False  a<think>"},
		{[]string{"--chat-template-args", `{"effort": 3, "enable_thinking": true}`, "--no-thinking"}, `[{"role":"user","content":"a"}]`, "True False 3 a<think>"},
		{nil, `{"messages": [{"role":"user","content":"a"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`, "with 1"},
	} {
		f := newTemplateFlags()
		g := flags.NewGroup("")
		f.add(g)
		if err := g.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		in, err := f.messagesInput([]byte(c.json), console.NewNotes(false))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.prompt(t.Context(), in, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Decode(p.IDs); got != c.want || !p.Chat || p.Thinking != strings.HasSuffix(c.want, "<think>") {
			t.Errorf("%v, %s: the prompt is %q (thinking: %v), want %q", c.args, c.json, got, p.Thinking, c.want)
		}
	}
}

// openTinyWith opens the embedded model with some files replaced (or, with an empty text, left out) until the
// end of the test.
func openTinyWith(t *testing.T, replaced map[string]string) *session {
	t.Helper()
	files, dir := tiny.Files(), t.TempDir()
	maps.Copy(files, replaced)
	for name, text := range files {
		if text == "" {
			continue
		}
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	m, err := foretoken.Open(t.Context(), dir, foretoken.Options{Threads: 1, Speculation: foretoken.Speculation{Depth: foretoken.DepthOff}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return &session{&load.Model{Model: m, Notes: console.NewNotes(false)}}
}

func FuzzMessagesInput(f *testing.F) {
	f.Add(`[{"role":"user","content":"a"}]`)
	f.Add(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[{"function":{"name":"f"}}]}`)
	f.Add(`{"messages":null,"tools":null,"":0}`)
	f.Fuzz(func(t *testing.T, data string) {
		flags := newTemplateFlags()
		in, err := flags.messagesInput([]byte(data), console.NewNotes(false))
		if err == nil && len(in.messages) == 0 {
			t.Error("no messages and no error")
		}
	})
}

func FuzzFlagValues(f *testing.F) {
	f.Add("1,2,3")
	f.Add("42=-5")
	f.Add(`{"a":1}`)
	f.Add("NaN")
	f.Fuzz(func(t *testing.T, text string) {
		if ids, err := parseIDs(text); err == nil && (len(ids) == 0 || slices.Min(ids) < 0) {
			t.Errorf("--prompt-ids %q gives %v", text, ids)
		}
		given := newSamplingFlags()
		set := given.group().Flags()
		for _, name := range []string{"temp", "top-p", "top-k", "min-p", "xtc-probability", "xtc-threshold", "repetition-penalty", "logit-bias", "seed"} {
			_ = set.Set(name, text) // refused or accepted: an accepted one must be valid for a sampler
		}
		o, err := given.options(models.Recommended(checkpoint.Generation{}))
		if err != nil {
			return
		}
		if _, err := sampling.New(o, nil); err != nil && len(o.LogitBias) == 0 {
			t.Errorf("%q: %v", text, err)
		}
	})
}

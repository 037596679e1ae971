package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

func uitoa(n uint64) string { return strconv.FormatUint(n, 10) }

func logprobOf(id int32, v float64) sample.LogProb {
	return sample.LogProb{ID: id, LogProb: float32(v)}
}

// linkTiny makes a checkpoint folder out of the embedded model's, with some files replaced
// (or, with an empty text, left out).
func linkTiny(t *testing.T, replaced map[string]string) string {
	t.Helper()
	from, err := filepath.Abs("../../internal/models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "my-model")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := replaced[e.Name()]; ok {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range replaced {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCheckpointWithoutTemplateSaysWhatToDo(t *testing.T) {
	dir := linkTiny(t, map[string]string{"chat_template.jinja": ""})
	o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi.")
	if o.code != exitError || !strings.Contains(o.err, "model my-model: the checkpoint has no chat template: use --no-chat-template") {
		t.Errorf("without a template: %+v", o)
	}
	r := generateJSON(t, "--model", dir, "--prompt", "Once upon a", "--no-chat-template", "--max-tokens", "1")
	if r.Model != "my-model" {
		t.Errorf("the model is called %q", r.Model)
	}
}

func TestCheckpointFaultsNameTheFile(t *testing.T) {
	for name, says := range map[string]string{
		"tokenizer.json":         "tokenizer.json",
		"tokenizer_config.json":  "tokenizer_config.json",
		"generation_config.json": "generation_config.json",
		"chat_template.jinja":    "template: jinja: line 1",
	} {
		dir := linkTiny(t, map[string]string{name: "{% {"})
		o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi.")
		if o.code != exitError || !strings.Contains(o.err, says) {
			t.Errorf("broken %s: %+v", name, o)
		}
	}
	dir := linkTiny(t, map[string]string{"tokenizer.json": ""})
	if o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi."); o.code != exitError || !strings.Contains(o.err, "tokenizer.json") {
		t.Errorf("missing tokenizer.json: %+v", o)
	}
}

// What a template says of a conversation that it refuses does not reach a terminal as it is.
func TestErrorsDoNotSteerTheTerminal(t *testing.T) {
	dir := linkTiny(t, map[string]string{"chat_template.jinja": "{{ raise_exception('\x1b]0;title\x07not so') }}"})
	if o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi."); o.code != exitError || !strings.HasSuffix(o.err, "]0;titlenot so\n") {
		t.Errorf("%+v", o)
	}
}

func TestTemplateGetsItsVariables(t *testing.T) {
	s := openLinked(t, linkTiny(t, map[string]string{"chat_template.jinja": "", "tokenizer_config.json": `{"chat_template": [
		{"name": "default", "template": "{{ enable_thinking is defined }} {{ enable_thinking }} {{ effort }} {{ messages[0].content }}{{ tools|length if tools }}<think>"},
		{"name": "tool_use", "template": "with {{ tools|length }}"}]}`}))
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
		p, err := s.prompt(in, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Decode(p.IDs); got != c.want || !p.Chat || p.Thinking != strings.HasSuffix(c.want, "<think>") {
			t.Errorf("%v, %s: the prompt is %q (thinking: %v), want %q", c.args, c.json, got, p.Thinking, c.want)
		}
	}
}

// openLinked opens a model that linkTiny has made until the end of the test.
func openLinked(t *testing.T, dir string) *session {
	t.Helper()
	m, err := foretoken.Open(dir, foretoken.Options{Threads: 1, Speculation: foretoken.Speculation{Depth: foretoken.DepthOff}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return &session{&load.Model{Model: m, Notes: console.NewNotes(false)}}
}

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
			parser := chat.NewParser(chat.ParserOptions{Thinking: true})
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
		parser := chat.NewParser(chat.ParserOptions{Thinking: c.thinking})
		events := append(parser.Write(c.text), parser.Close()...)
		if err := errors.Join(show.write(foretoken.Piece{Events: events}), show.end()); err != nil || out.String() != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, &out, err, c.want)
		}
	}
}

// What comes after a line that is too long is not read, and must not be lost for that.
func TestHistoryKeepsWhatItCannotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	var text strings.Builder
	for i := range maxHistory {
		fmt.Fprintln(&text, i)
	}
	fmt.Fprintf(&text, "%s\nthe last\n", strings.Repeat("x", 2<<20))
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
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
			_ = set.Set(name, text) // refused or taken: what is taken must do for a sampler
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

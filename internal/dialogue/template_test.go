package dialogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/jinja"
)

func loadTurns(t testing.TB) *Template {
	t.Helper()
	src := filetest.Read(t, "testdata/turns.jinja")
	tmpl := parseTemplate(t, string(src))
	return tmpl
}

func TestTemplateRendersConversation(t *testing.T) {
	tmpl := loadTurns(t)
	messages, err := chat.DecodeMessages([]byte(`[
		{"role": "system", "content": " Be brief. "},
		{"role": "user", "name": "Ann", "content": [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {"url": "x"}}]},
		{"role": "assistant", "content": "Nice.", "reasoning_content": "an image"},
		{"role": "user", "content": "Weather in Zürich?"},
		{"role": "assistant", "content": null, "reasoning_content": "ask the tool",
		 "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Zürich\", \"days\": [1, 2.0], \"ok\": true}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "sunny"}
	]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := chat.DecodeTools([]byte(`[{"type": "function", "function": {"name": "weather", "parameters": {"z": 1, "a": "é<"}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(Input{Messages: messages, Tools: tools, AddGenerationPrompt: true})
	want := `[tools]
{"name": "weather", "parameters": {"z": 1, "a": "é<"}}
[system] Be brief.
[user Ann] Look: (image_url)
[assistant] Nice.
[user] Weather in Zürich?
[assistant] <think>ask the tool</think> 
[call] weather city=Zürich days=[1, 2.0] ok=true
[tool c1] sunny
[assistant] <think>
`
	if err != nil || got.Text != want {
		t.Errorf("error %v\n got %q\nwant %q", err, got.Text, want)
	}
	if !got.StartsThinking() {
		t.Error("the prompt opens a think block that StartsThinking does not see")
	}
}

func TestTemplateTakesVariables(t *testing.T) {
	variables := map[string]any{"enable_thinking": false}
	in := Input{Messages: []chat.Message{{Role: "user", Content: chat.Text("Hi")}}, AddGenerationPrompt: true, Variables: variables}
	got, err := loadTurns(t).Render(in)
	if want := "[user] Hi\n[assistant] <think></think>\n"; err != nil || got.Text != want {
		t.Errorf("got %q, %v, want %q", got.Text, err, want)
	}
	if got.StartsThinking() {
		t.Error("StartsThinking sees a block that was closed")
	}
	variables["messages"] = nil
	if _, err := loadTurns(t).Render(in); err == nil || !strings.Contains(err.Error(), `"messages"`) {
		t.Errorf("a variable named messages: error %v", err)
	}
}

func TestTemplateRefusals(t *testing.T) {
	tmpl := loadTurns(t)
	for want, messages := range map[string][]chat.Message{
		"There is nothing to answer.":                     nil,
		"No such role: alien":                             {{Role: "alien", Content: chat.Text("x")}},
		"Only the first message may be a system message.": {{Role: "user"}, {Role: "system"}},
		"A system message takes text only.":               {{Role: "system", Content: chat.Parts(chat.Part{Media: &chat.Media{}})}},
	} {
		_, err := tmpl.Render(Input{Messages: messages})
		var raised *jinja.RaiseError
		if !errors.As(err, &raised) || raised.Message != want {
			t.Errorf("error %v, want a RaiseError with %q", err, want)
		}
	}
}

// TestTemplateVariables checks the variables of a template for fields that are present, null
// or missing.
func TestTemplateVariables(t *testing.T) {
	const conversation = `[{"role": "user", "content": "a", "mood": {"b": 1, "a": 2}},
		{"role": "assistant", "content": null},
		{"role": "assistant", "tool_calls": [{"name": "f"}, {"function": {"name": "g", "arguments": ""}}]},
		{"role": "assistant", "content": "x", "tool_calls": [], "reasoning_content": "", "name": null, "tool_call_id": null}]`
	messages, err := chat.DecodeMessages([]byte(conversation), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	for src, want := range map[string]string{
		"{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}":   "True True False",
		"{{ bos_token }} {{ eos_token is defined }}":                                "<s> False",
		"{{ messages[0] | tojson }}":                                                `{"role": "user", "content": "a", "mood": {"b": 1, "a": 2}}`,
		"{{ messages[1] | tojson }}":                                                `{"role": "assistant", "content": ""}`,
		"{{ messages[2].content == '' }} {{ messages[2].tool_calls | tojson }}":     `True [{"type": "function", "function": {"name": "f", "arguments": {}}}, {"type": "function", "function": {"name": "g", "arguments": {}}}]`,
		"{{ messages[3].tool_calls is defined }} {{ messages[3].name is defined }}": "False False",
		"{{ messages[3].reasoning_content is string }}":                             "True",
		"{{ messages[1].reasoning_content is defined }}":                            "False",
		"{{ dict(messages[2].tool_calls[0].function.arguments) }}":                  "{}",
		"{{ strftime_now('%Y-%m-%d') }}":                                            "2026-08-01",
	} {
		tmpl := parseTemplate(t, src)
		got, err := tmpl.Render(Input{Messages: messages, BOSToken: "<s>", Now: func() time.Time { return at }})
		if err != nil || got.Text != want {
			t.Errorf("%s: got %q, %v, want %q", src, got.Text, err, want)
		}
	}
}

// TestNullContentIsAnEmptyText has messages without content in every template, of all roles, also of
// an assistant without content and calls.
func TestNullContentIsAnEmptyText(t *testing.T) {
	eachShipped(t, func(name, source string, _ ToolFormat) {
		tmpl := parseTemplate(t, source)
		for _, conversation := range []string{
			`[{"role": "user", "content": "x"}, {"role": "assistant", "content": NULL}, {"role": "user", "content": "y"}]`,
			`[{"role": "user", "content": "x"}, {"role": "assistant", "content": NULL, "reasoning_content": "r"}, {"role": "user", "content": "y"}]`,
			`[{"role": "user", "content": "x"}, {"role": "assistant", "content": "z", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}, {"role": "tool", "tool_call_id": "1", "content": NULL}]`,
			`[{"role": "system", "content": NULL}, {"role": "user", "content": "x"}]`,
			`[{"role": "user", "content": NULL}]`,
		} {
			render := func(content string) Rendered {
				messages, err := chat.DecodeMessages([]byte(strings.ReplaceAll(conversation, "NULL", content)), nil)
				if err != nil {
					t.Fatal(err)
				}
				r, err := tmpl.Render(Input{Messages: messages, AddGenerationPrompt: true, BOSToken: "<s>", EOSToken: "</s>"})
				if err != nil {
					t.Errorf("%s: %s: content %s: %v", name, conversation, content, err)
				}
				return r
			}
			if got, want := render("null"), render(`""`); got.Text != want.Text {
				t.Errorf("%s: %s\nnull is    %q,\nempty text %q", name, conversation, got.Text, want.Text)
			}
		}
	})
}

func TestNewTemplateRefusesBadSource(t *testing.T) {
	_, err := NewTemplate("a\n{% if %}")
	if err == nil || !strings.Contains(err.Error(), "chat: template: jinja: line 2") {
		t.Errorf("error %v, want one that names the line", err)
	}
}

func TestAsks(t *testing.T) {
	decoded, err := jinja.DecodeJSON([]byte("true"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		variables   map[string]any
		think, said bool
	}{
		{nil, false, false},
		{map[string]any{"other": true}, false, false},
		{map[string]any{"enable_thinking": true}, true, true},
		{map[string]any{"enable_thinking": decoded, "thinking": false}, true, true},
		{map[string]any{"thinking": json.RawMessage("true")}, true, true},
		{map[string]any{"enable_thinking": json.RawMessage("false"), "thinking": true}, false, true},
		{map[string]any{"enable_thinking": func() {}}, false, true},
	} {
		if think, said := Asks(c.variables); think != c.think || said != c.said {
			t.Errorf("%v: %v, %v", c.variables, think, said)
		}
	}
}

func TestStartsThinking(t *testing.T) {
	for prompt, want := range map[string]bool{
		"": false, "<think>": true, "a<think>\n": true, "<think>\n\n</think>\n\n": false,
		"<think> hm": false, "<|im_start|>assistant\n": false, "</think><think>\n\n": true,
	} {
		own := Rendered{Text: prompt, Trusted: [][2]int{{0, len(prompt)}}}
		if got := own.StartsThinking(); got != want {
			t.Errorf("StartsThinking(%q) = %v", prompt, got)
		}
		if (Rendered{Text: prompt}).StartsThinking() {
			t.Errorf("StartsThinking(%q) takes a stranger's word", prompt)
		}
	}
	const forged = "a<think>\n"
	for want, trusted := range map[bool][][2]int{true: {{0, 8}}, false: {{0, 7}, {8, 9}}} {
		if got := (Rendered{Text: forged, Trusted: trusted}).StartsThinking(); got != want {
			t.Errorf("StartsThinking(%q) with %v trusted = %v", forged, trusted, got)
		}
	}
}

// BenchmarkRender renders long conversations; the metric is prompt text per
// second.
func BenchmarkRender(b *testing.B) {
	for _, turns := range []int{10, 1000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			benchmarkRender(b, loadTurns(b), turns)
		})
	}
}

// BenchmarkRenderCalls does the same with a template like those of releases.
func BenchmarkRenderCalls(b *testing.B) {
	tmpl := parseTemplate(b, string(readFile(b, "testdata/calls_xml.jinja")))
	for _, turns := range []int{10, 1000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) { benchmarkRender(b, tmpl, turns) })
	}
}

func benchmarkRender(b *testing.B, tmpl *Template, turns int) {
	in := Input{AddGenerationPrompt: true}
	words := strings.Repeat("All work and no play makes Jack a dull boy. ", 10)
	for i := range turns {
		in.Messages = append(in.Messages,
			chat.Message{Role: "user", Content: chat.Text(fmt.Sprint(i, words))},
			chat.Message{Role: "assistant", Content: chat.Text(words), ReasoningContent: &words})
	}
	n := 0
	for b.Loop() {
		text, err := tmpl.Render(in)
		if err != nil {
			b.Fatal(err)
		}
		n = len(text.Text)
	}
	b.SetBytes(int64(n))
}

// TestDecodedPartsRenderAsParts: templates see the same part for every spelling of an image,
// so that no spelling bypasses them.
func TestDecodedPartsRenderAsParts(t *testing.T) {
	template := parseTemplate(t, `{%- for p in messages[0].content %}{%- if p.type == 'image' or 'image' in p or 'image_url' in p %}<i>{%- elif 'text' in p %}{{- p.text }}{%- endif %}{%- endfor %}`)
	for i, parts := range []string{
		`{"type": "text", "text": "1"}, {"type": "image", "image": "a"}, {"type": "text", "text": "2"}`,
		`{"type": "text", "text": "1"}, {"type": "image_url", "image_url": {"url": "a"}}, {"type": "text", "text": "2"}`,
		`{"type": "text", "text": "1"}, {"type": "image", "source": {"type": "url", "url": "a"}}, {"type": "text", "text": "2"}`,
	} {
		messages, err := chat.DecodeMessages([]byte(`[{"role": "user", "content": [`+parts+`]}]`), func(string) ([]byte, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		r, err := template.Render(Input{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		if r.Text != "1<i>2" {
			t.Errorf("spelling %d: %q", i, r.Text)
		}
	}
}

// parseTemplate parses a template, or ends the test.
func parseTemplate(tb testing.TB, source string) *Template {
	tb.Helper()
	tmpl, err := NewTemplate(source)
	if err != nil {
		tb.Fatal(err)
	}
	return tmpl
}

package dialogue

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/jinja"
)

// fixturesVariable names a folder with third-party templates, chat/templates, and their
// renderings, chat/cases.json. We may not ship them: if it is set they are tested
// like our own.
const fixturesVariable = "FORETOKEN_FIXTURES"

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil && filepath.Ext(name) == ".gz" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			data, err = io.ReadAll(z)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// renderings are templates of a family, by path with the format of calls that they
// teach, and the reference's renderings of conversations.
type renderings struct {
	templates string // folder
	teaches   map[string]ToolFormat
	cases     string // file
	count     int
}

// references are our own renderings, and those of the third-party templates if available.
func references() []renderings {
	list := []renderings{{
		"testdata", map[string]ToolFormat{"calls_xml.jinja": ToolXML, "calls_json.jinja": ToolJSON}, "testdata/calls.json.gz", 228,
	}, {
		"testdata", map[string]ToolFormat{
			"calls_lines.jinja": ToolGLM, "calls_tight.jinja": ToolGLM, "calls_fenced.jinja": ToolDeepSeek, "calls_sep.jinja": ToolDeepSeek,
			"calls_marked.jinja": ToolMarked,
		}, "testdata/families.json.gz", 113,
	}}
	if dir := os.Getenv(fixturesVariable); dir != "" {
		list = append(list, renderings{filepath.Join(dir, "chat", "templates"), map[string]ToolFormat{
			"Qwen3.5-4B.jinja": ToolXML, "Qwen3.8.jinja": ToolXML, "Qwen3-Coder.jinja": ToolXML, "Qwen-Qwen3-0.6B.jinja": ToolJSON,
		}, filepath.Join(dir, "chat", "cases.json"), 480}, renderings{filepath.Join(dir, "chat", "templates"), map[string]ToolFormat{
			"gemma-4-31B-it.jinja": ToolMarked, "gemma-4-vllm.jinja": ToolMarked,
		}, filepath.Join(dir, "chat", "gemma4_cases.json"), 120})
	}
	return list
}

// eachShipped calls f with every template of references.
func eachShipped(t *testing.T, f func(name, source string, teaches ToolFormat)) {
	t.Helper()
	for _, r := range references() {
		for name, teaches := range r.teaches {
			f(name, string(readFile(t, filepath.Join(r.templates, name))), teaches)
		}
	}
}

func TestTeaches(t *testing.T) {
	eachShipped(t, func(name, source string, want ToolFormat) {
		if got := Teaches(source).Format; got != want {
			t.Errorf("%s teaches %d, want %d", name, got, want)
		}
	})
}

// TestTeachesToTheByte checks the syntax of calls, the shape of messages and the think
// blocks that are detected in our own templates.
func TestTeachesToTheByte(t *testing.T) {
	for name, want := range map[string]struct {
		syntax   CallSyntax
		shape    shape
		thinking Thinking
	}{
		"calls_xml.jinja":    {xmlCalls, shape{}, Thinking{Tags: thinkForms[0], Close: "\n</think>", Apart: "\n\n"}},
		"calls_json.jinja":   {JSONCalls, shape{}, Thinking{Tags: thinkForms[0], Open: "        <think>\n", Close: "\n</think>", Apart: "\n\n"}},
		"calls_lines.jinja":  {glmCalls("\n", "\n", "\n", "\n", "\n"), shape{}, Thinking{Tags: thinkForms[0], Open: "\n<think>", Close: "</think>", Apart: "\n"}},
		"calls_tight.jinja":  {glmCalls("", "", "", "", ""), shape{}, Thinking{Tags: thinkForms[0], Close: "</think>"}},
		"calls_fenced.jinja": {deepSeekCalls("", deepSeekBegin, "function"+deepSeekSep, "\n```json\n", "\n```", "\n"), shape{text: true, null: true}, Thinking{Tags: thinkForms[0], Close: "\n</think>", Apart: "\n\n"}},
		"calls_marked.jinja": {markedCalls("", ""), shape{}, Thinking{Tags: thinkForms[1], Asked: true, Open: "<|channel>thought\n", Close: "\n<channel|>"}},
		"calls_sep.jinja":    {deepSeekCalls("", deepSeekBegin, "", deepSeekSep, "", ""), shape{}, Thinking{Tags: thinkForms[0], Asked: true, Close: "</think>"}},
	} {
		source := string(readFile(t, filepath.Join("testdata", name)))
		tmpl := parseTemplate(t, source)
		if got := Teaches(source); got != want.syntax {
			t.Errorf("%s teaches %q,\nwant %q", name, got, want.syntax)
		}
		if got := tmpl.shape(); got != want.shape {
			t.Errorf("%s wants %+v, not %+v", name, got, want.shape)
		}
		if got := tmpl.Thinking(); got != want.thinking {
			t.Errorf("%s: %#v, want %#v", name, got, want.thinking)
		}
	}
}

// TestProbesAreBounded has a template that does nothing but work.
func TestProbesAreBounded(t *testing.T) {
	const source = `{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}`
	tmpl := parseTemplate(t, source)
	for _, in := range probes() {
		var limit *jinja.LimitError
		if _, err := tmpl.render(in, shape{}); !errors.As(err, &limit) || limit.Max != probeSteps {
			t.Errorf("error %v", err)
		}
	}
	if got := Teaches(source); got != JSONCalls {
		t.Errorf("it teaches %q", got)
	}
}

// TestTeachesAsTheSourceSays compares the detected format with the source of every
// template of the repository: none of them mentions a format that it does not use.
func TestTeachesAsTheSourceSays(t *testing.T) {
	found := map[ToolFormat]int{}
	err := filepath.WalkDir("..", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(name) != ".jinja" {
			return err
		}
		source, want := string(readFile(t, name)), ToolJSON
		for _, s := range said {
			if strings.Contains(source, s.tag) {
				want = s.syntax.Format
			}
		}
		got := Teaches(source).Format
		if got != want {
			t.Errorf("%s teaches %d, want %d", name, got, want)
		}
		found[got]++
		return nil
	})
	if err != nil || found[ToolXML] < 2 || found[ToolJSON] < 4 || found[ToolGLM] < 2 || found[ToolDeepSeek] < 2 || found[ToolMarked] < 1 {
		t.Errorf("%v, templates by format: %v", err, found)
	}
}

// TestTeachesByWhatComesOut has sources that speak of one format and write the other, or refuse
// some conversations.
func TestTeachesByWhatComesOut(t *testing.T) {
	const call = `{% for m in messages %}{% for c in m.tool_calls or [] %}`
	const end = `{% endfor %}{% endfor %}`
	for source, want := range map[string]ToolFormat{
		`{# not <function= #}` + call + `{{ c.function | tojson }}` + end:                                                                 ToolJSON,
		call + `{{ '<func' ~ 'tion=' ~ c.function.name ~ '>' }}` + end:                                                                    ToolXML,
		`{% if tools %}Never write <function=x>.{% endif %}` + call + `{{ c.function | tojson }}` + end:                                   ToolJSON,
		`{% if tools %}Write <function=name>.{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}`:                               ToolXML,
		`{% if messages[-1].role == 'tool' %}{{ raise_exception('no') }}{% endif %}` + call + `<function={{ c.function.name }}>` + end:    ToolXML,
		`{% if tools or messages | length > 2 %}{{ raise_exception('no') }}{% endif %}` + call + `<function={{ c.function.name }}>` + end: ToolXML,

		`{% if tools %}Write <tool_call>name<arg_key>.{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}`: ToolGLM,
		`{% if tools %}Never <arg_key>.{% endif %}` + call + `{{ c.function | tojson }}` + end:                       ToolJSON,
		`{{ '<｜tool▁call▁begin｜>' if tools }}`:                                                                       ToolDeepSeek,

		// A template that cannot be rendered teaches nothing.
		`{{ raise_exception('<function=') }}`: ToolJSON,
		`{% if %}<function=`:                  ToolJSON,
	} {
		if got := Teaches(source).Format; got != want {
			t.Errorf("%s teaches %d, want %d", source, got, want)
		}
	}
}

// rendering is Jinja's own result for a conversation, with the setup of Hugging Face
// transformers.
type rendering struct {
	Template            string
	Case                string
	Messages            []chat.Message
	Tools               []chat.Tool
	AddGenerationPrompt bool `json:"add_generation_prompt"`
	Kwargs              json.RawMessage
	Output              *string
	Error               string
}

// TestRenderEqualsReference renders every case byte for byte, and refuses those that the
// reference refused. Ours are renderings by Jinja 3.1.6 of two templates with the parts of
// third-party ones.
func TestRenderEqualsReference(t *testing.T) {
	for _, s := range references() {
		var cases []rendering
		filetest.Decode(t, readFile(t, s.cases), &cases)
		templates := map[string]*Template{}
		refused := 0
		for i, c := range cases {
			if templates[c.Template] == nil {
				tmpl := parseTemplate(t, string(readFile(t, filepath.Join(s.templates, c.Template))))
				templates[c.Template] = tmpl
			}
			checkRendering(t, i, templates[c.Template], &c)
			if c.Output == nil {
				refused++
			}
		}
		t.Logf("%s: %d cases, of which %d are refused", s.cases, len(cases), refused)
		if len(cases) != s.count {
			t.Errorf("%s: %d cases, expected %d", s.cases, len(cases), s.count)
		}
	}
}

func checkRendering(t *testing.T, i int, tmpl *Template, c *rendering) {
	t.Helper()
	kwargs, err := jinja.DecodeJSON(c.Kwargs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(Input{
		Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: c.AddGenerationPrompt, Variables: kwargs.Map().Any(), BOSToken: "<s>",
	})
	switch {
	case c.Output == nil && err == nil:
		t.Errorf("case %d (%s, %s): got %q, the reference raised %s", i, c.Template, c.Case, got.Text, c.Error)
	case c.Output == nil:
		var raised *jinja.RaiseError
		if words, ok := strings.CutPrefix(c.Error, "TemplateError: "); ok && (!errors.As(err, &raised) || raised.Message != words) {
			t.Errorf("case %d (%s, %s): error %v, the template raised %q", i, c.Template, c.Case, err, words)
		}
	case err != nil:
		t.Errorf("case %d (%s, %s): %v", i, c.Template, c.Case, err)
	case got.Text != *c.Output:
		t.Errorf("case %d (%s, %s):\n got %q\nwant %q", i, c.Template, c.Case, got.Text, *c.Output)
	}
}

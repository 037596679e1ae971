package chat

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat/jinja"
)

// fixtures is the folder of third-party templates and renderings, which are not
// ours to ship.
const fixtures = "../../shared/fixtures/chat"

// readFixture reads a file of fixtures. Without the folder the test is skipped,
// except in CI, where that is a failure.
func readFixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, name))
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true":
		t.Skipf("third-party chat templates are not at %s: skipped", fixtures)
	default:
		t.Fatal(err)
	}
	return data
}

// TestTeaches tells what the shipped templates teach.
func TestTeaches(t *testing.T) {
	for name, want := range map[string]ToolFormat{
		"Qwen3.5-4B.jinja": ToolXML, "Qwen3.8.jinja": ToolXML, "Qwen3-Coder.jinja": ToolXML, "Qwen-Qwen3-0.6B.jinja": ToolJSON,
	} {
		if got := Teaches(string(readFixture(t, filepath.Join("templates", name)))); got != want {
			t.Errorf("%s teaches %d, want %d", name, got, want)
		}
	}
}

// TestRenderEqualsHuggingFace renders every case of the shipped Qwen templates
// byte for byte, and refuses those the reference refused.
func TestRenderEqualsHuggingFace(t *testing.T) {
	var cases []struct {
		Template            string
		Case                string
		Messages            []Message
		Tools               []Tool
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Kwargs              json.RawMessage
		Output              *string
		Error               string
	}
	if err := json.Unmarshal(readFixture(t, "cases.json"), &cases); err != nil {
		t.Fatal(err)
	}
	templates := map[string]*Template{}
	refused := 0
	for i, c := range cases {
		if templates[c.Template] == nil {
			tmpl, err := NewTemplate(string(readFixture(t, filepath.Join("templates", c.Template))))
			if err != nil {
				t.Fatal(err)
			}
			templates[c.Template] = tmpl
		}
		kwargs, err := jinja.DecodeJSON(c.Kwargs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := templates[c.Template].Render(Input{
			Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: c.AddGenerationPrompt, Kwargs: kwargs.Map(),
		})
		switch {
		case c.Output == nil && err == nil:
			t.Errorf("case %d (%s, %s): got %q, the reference raised %s", i, c.Template, c.Case, got.Text, c.Error)
		case c.Output == nil:
			refused++
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
	t.Logf("%d cases, of which %d are refused", len(cases), refused)
	if len(cases) != 480 {
		t.Errorf("%d cases, expected 480", len(cases))
	}
}

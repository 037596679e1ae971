package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/jinja"
)

func TestDecodeMessagesReadsFields(t *testing.T) {
	messages, err := DecodeMessages([]byte(`[{"role": "assistant", "content": "c", "reasoning_content": "r", "name": "n",
		"tool_call_id": "t", "x": 1, "tool_calls": [
			{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": {"b": null}}}},
			{"name": "g", "arguments": "{\"z\": 1.0, \"a\": []}"}]}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := messages[0]
	text, _ := m.Content.Text()
	if m.Role != "assistant" || text != "c" || m.ReasoningContent == nil || *m.ReasoningContent != "r" ||
		m.Name != "n" || m.ToolCallID != "t" || m.extra.Len() != 1 || len(m.ToolCalls) != 2 {
		t.Fatalf("got %+v", m)
	}
	if c := m.ToolCalls[0]; c.ID != "1" || c.Name != "f" || c.Arguments.JSON() != `{"z": 1, "a": {"b": null}}` {
		t.Errorf("first call %+v with %s", c, c.Arguments.JSON())
	}
	if c := m.ToolCalls[1]; c.ID != "" || c.Name != "g" || c.Arguments.JSON() != `{"z": 1.0, "a": []}` {
		t.Errorf("second call %+v with %s", c, c.Arguments.JSON())
	}
}

func TestDecodeMessagesSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		``:                                   "JSON",
		`{}`:                                 "array",
		`[1]`:                                "messages[0]: expected an object",
		`[{"content": "a"}]`:                 "'role' is missing",
		`[{"role": ""}]`:                     "'role' is missing",
		`[{"role": 1}]`:                      "'role' must be a string",
		`[{"role": "user"}, {"role": null}]`: "messages[1]: 'role'",
		`[{"role": "user", "content": 1}]`:   "'content' must be a string, an array",
		`[{"role": "user", "content": {}}]`:  "'content' must be",
		`[{"role": "user", "content": [1]}]`: "'content[0]' must be an object",
		`[{"role": "user", "content": [{"type": "text"}, {"type": 1}]}]`:                           "'content[1]'",
		`[{"role": "user", "name": 1}]`:                                                            "'name'",
		`[{"role": "user", "tool_call_id": 1}]`:                                                    "'tool_call_id'",
		`[{"role": "user", "reasoning_content": []}]`:                                              "'reasoning_content'",
		`[{"role": "user", "tool_calls": {}}]`:                                                     "'tool_calls' must be an array",
		`[{"role": "user", "tool_calls": [1]}]`:                                                    "'tool_calls[0]': expected a function",
		`[{"role": "user", "tool_calls": [{"function": {}}]}]`:                                     "'tool_calls[0]': expected a function",
		`[{"role": "user", "tool_calls": [{"function": 1}]}]`:                                      "'tool_calls[0]': expected a function",
		`[{"role": "user", "tool_calls": [{"id": 1, "name": "f"}]}]`:                               "'id'",
		`[{"role": "user", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}]`:       "arguments of 'f': expected a JSON object",
		`[{"role": "user", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": "}}]}]`: "arguments of 'f'",
		`[{"role": "user", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]`:          "arguments of 'f'",
		`[{"role": "user", "deep": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}]`:  "nesting",
	} {
		_, err := DecodeMessages([]byte(text), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "chat: messages") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestDecodeToolsSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		``: "JSON", `{}`: "array", `[1]`: "tools[0]", `[{}]`: "tools[0]", `[{"function": {"name": ""}}]`: "'name'",
		`[{"function": {"name": "a"}}, {"function": []}]`: "tools[1]",
	} {
		_, err := DecodeTools([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
	for _, text := range []string{`[]`, `[{"name": "flat"}]`, `[{"type": "function", "function": {"name": "f"}}]`} {
		if _, err := DecodeTools([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestUnmarshalWithinRequest decodes messages and tools as fields of a larger
// structure, which is how a server meets them.
func TestUnmarshalWithinRequest(t *testing.T) {
	var request struct {
		Messages []Message
		Tools    []Tool
	}
	const body = `{"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"name": "f"}}]}`
	filetest.Decode(t, body, &request)
	if text, _ := request.Messages[0].Content.Text(); text != "hi" || request.Tools[0].Name() != "f" {
		t.Errorf("got %+v", request)
	}
	for _, bad := range []string{`{"messages": [{"role": 1}]}`, `{"tools": [{}]}`} {
		if err := json.Unmarshal([]byte(bad), &request); err == nil || !strings.Contains(err.Error(), "chat: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

func TestContentText(t *testing.T) {
	for content, want := range map[string]string{
		`null`: "", `"a"`: "a", `[]`: "",
		`[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]`: "ab",
	} {
		if got, ok := decodeContent(t, content).Text(); got != want || !ok {
			t.Errorf("%s: %q, %v, want %q", content, got, ok, want)
		}
	}
	if got, ok := decodeContent(t, `[{"type": "text", "text": "a"}, {"type": "image"}]`).Text(); ok {
		t.Errorf("an image became %q", got)
	}
}

func decodeContent(t *testing.T, text string) Content {
	t.Helper()
	v, err := jinja.DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := contentFrom(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add(`[{"role": "user", "content": [{"type": "text", "text": "a"}]}]`)
	f.Add(`[{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}]`)
	f.Add(`[{"role": "user", "content": "a", "x": 12345678901234567890}]`)
	f.Add(`[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a", "detail": "low"}}, {"type": "video", "video": ["a"], "fps": 1e9}]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		messages, err := DecodeMessages([]byte(text), named)
		if err != nil {
			return
		}
		for i := range messages {
			messages[i].value(i%2 == 0, i%3 == 0)
		}
		for _, m := range messages {
			_, _ = m.Content.Text()
			for _, c := range m.ToolCalls {
				if !json.Valid([]byte(c.Arguments.JSON())) {
					t.Errorf("arguments are not JSON: %s", c.Arguments.JSON())
				}
			}
		}
	})
}

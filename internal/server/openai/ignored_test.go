package openai

import (
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

// toleratedRequests are requests of which something is ignored.
var toleratedRequests = []generatetest.Tolerated{
	{chatPath, `{` + story + `, "max_tokens": 1, "color": "red"}`, "color", `not supported`},
	{chatPath, `{` + story + `, "max_tokens": 1, "foretoken": {"receit": true}}`, "foretoken.receit", `not supported`},
	{chatPath, `{` + story + `, "max_tokens": 1, "verbosity": "low"}`, "verbosity=low", `set medium`},
	{chatPath, `{` + story + `, "max_tokens": 1, "audio": {"voice": "x"}}`, "audio", `not supported`},
	{chatPath, `{` + story + `, "max_tokens": 1, "tools": [{"type": "web_search", "size": 3}]}`, "tools[].type=web_search", `use functions`},
	{chatPath, `{` + story + `, "max_tokens": 1, "tool_choice": "required", "tools": [{"type": "web_search"}]}`, "tool_choice=required, tools[].type=web_search", `use functions`},
	{chatPath, `{` + story + `, "max_tokens": 1, "tool_choice": {"type": "web_search"}, ` + weather + `}`, "tool_choice.type=web_search", `use functions`},
	{chatPath, `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "mood": 1}, {"type": "text", "text": "b", "mood": 2}]}], "max_tokens": 1}`, "messages[].content[].mood", `not supported`},
	{chatPath, `{` + story + `, "max_tokens": 1, "tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: start"}}}}]}`, "tools[].custom.format.grammar.syntax=lark", `begins with itself`},
	{textPath, `{"prompt": "a", "max_tokens": 1, "messages": []}`, "messages", `not supported`},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "truncation": "auto"}`, "truncation=auto", `shorten it`},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "text": {"verbosity": "high", "tone": 1}}`, "text.tone, text.verbosity=high", `set medium`},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "reasoning": {"summary": "detailed"}}`, "reasoning.summary=detailed", `set auto`},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "include": ["file_search_call.results", "reasoning.encrypted_content"]}`, "include[]=file_search_call.results", `value of include is not supported`},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "tools": [{"type": "file_search", "vector_store_ids": ["x"]}, {"type": "image_generation"}, {"type": "mcp", "server_label": "x"}]}`, "tools[].type=file_search, tools[].type=image_generation, tools[].type=mcp", `use functions`},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "n": 2}`, "n", `not supported`},
	{responsesPath, `{"input": [{"type": "web_search_call", "id": "ws_1", "action": {}}, {"role": "user", "content": "a", "mood": 1}], "max_output_tokens": 1}`, "input[].mood, input[].type=web_search_call", `not supported`},
}

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	generatetest.Tolerate(t, site.URL, Register, service, toleratedRequests)
	for _, c := range toleratedRequests {
		if status, ignored, text := generatetest.Post(t, site.URL+c[0], streamed(c[1])); status != http.StatusOK || ignored != c[2] {
			t.Errorf("%s %s, streamed: status %d, ignored %q, want %q: %.200s", c[0], c[1], status, ignored, c[2], text)
		}
	}
}

// Errors do not depend on strictness.
func TestStrictServersRefuseTheSame(t *testing.T) {
	strict := generatetest.Strict(t, Register, service)
	for _, c := range refusals {
		if status, _, answer := generatetest.Post(t, strict+c.path, c.request); status != c.status || !strings.Contains(answer, `"error"`) {
			t.Errorf("%s %.200s: status %d, want %d: %s", c.path, c.request, status, c.status, answer)
		}
	}
}

func TestNothingIgnoredNoHeader(t *testing.T) {
	for path, text := range map[string]string{chatPath: `{` + story + `, "max_tokens": 1}`, responsesPath: `{"input": "a", "max_output_tokens": 1, "client_metadata": {"x": "y"}}`} {
		if status, ignored, answer := generatetest.Post(t, site.URL+path, text); status != http.StatusOK || ignored != "" {
			t.Errorf("%s: %d, ignored %q: %s", path, status, ignored, answer)
		}
	}
}

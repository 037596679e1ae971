package anthropic

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	const path = "/v1/messages"
	request := func(more string) string {
		return `{"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], ` + more + `}`
	}
	talk := func(role, block string) string {
		return `{"max_tokens": 1, "messages": [{"role": "` + role + `", "content": [` + block + `]}, {"role": "user", "content": "Hi"}]}`
	}
	list := []generatetest.Tolerated{
		{path, `{"max_tokens": 1, "messages": [{"role": "user", "content": "Hi", "mood": 1}, {"role": "user", "content": [{"type": "text", "text": "Hi", "mood": 1}], "mood": 2}]}`, "messages[].content[].mood, messages[].mood", "messages[0].mood: this field is not supported"},
		{path, request(`"container": "c"`), "container", "container: this field is not supported"},
		{path, request(`"mcp_servers": [], "betas": ["x"]`), "betas, mcp_servers", "mcp_servers: this field is not supported"},
		{path, request(`"foretoken": {"recipt": true}`), "foretoken.recipt", "foretoken.recipt: this field is not supported"},
		{path, request(`"context_management": {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}]}`), "context_management.edits[].type=clear_tool_uses_20250919", "context_management.edits[0].type: editing the context is not supported"},
		{path, request(`"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "none"}]}`), "context_management.edits[].type=clear_thinking_20251015", "context_management.edits[0].type: editing the context is not supported"},
		{path, request(`"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}, {"name": "a", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "web_search"}`), "tool_choice.name=web_search, tools[].type=web_search_20250305", `"web_search_20250305" is a tool that the provider runs`},
		{path, request(`"tools": [{"type": "computer_20250124", "name": "computer", "display_width_px": 1}], "tool_choice": {"type": "any"}`), "tool_choice, tools[].type=computer_20250124", "is a tool that the provider runs"},
		{path, request(`"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}`), "tools[].type=web_fetch_20250910", "is a tool that the provider runs"},
		{path, request(`"tools": [{"name": "a", "input_schema": {}, "defer_loading": true}]`), "tools[].defer_loading", "tools[0].defer_loading: tool search is not supported"},
		{path, request(`"tools": [{"name": "a", "input_schema": {}, "allowed_callers": ["code"]}]`), "tools[].allowed_callers[]=code", "tools[0].allowed_callers[0]: the only supported caller"},
		{path, talk("assistant", `{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}`), "messages[].content[].type=redacted_thinking", "messages[0].content[0].type: encrypted thinking of another provider"},
		{path, talk("assistant", `{"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}, {"type": "web_search_tool_result", "tool_use_id": "x", "content": []}, {"type": "text", "text": "a"}`), "messages[].content[].type=server_tool_use, messages[].content[].type=web_search_tool_result", "the tool is run by the provider"},
	}
	generatetest.Tolerate(t, site.URL, Register, service, list)
	for _, c := range list {
		text := strings.Replace(c[1], "{", `{"stream": true, `, 1)
		if status, ignored, answer := generatetest.Post(t, site.URL+path, text); status != http.StatusOK || ignored != c[2] {
			t.Errorf("%s: %d, ignored %q: %s", text, status, ignored, answer)
		}
	}
}

// Tools that the protocol names by a type, and clients run, can be called.
func TestClientToolsAreOffered(t *testing.T) {
	for kind, name := range map[string]string{"bash_20250124": "bash", "text_editor_20250728": "str_replace_based_edit_tool", "memory_20250818": "memory"} {
		q, err := decode(body.Parse([]byte(`{"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tool_choice": {"type": "tool", "name": "`+name+`"},
			"tools": [{"type": "`+kind+`", "name": "`+name+`", "max_characters": 100}]}`)), false)
		if err != nil || len(q.Tools) != 1 || q.Tools[0].Name() != name || q.Named != name {
			t.Fatalf("%s: %v %+v", kind, err, q)
		}
		if status, text := post(t, "/v1/messages", `{"model": "thinker", "max_tokens": 30, "messages": [{"role": "user", "content": "Hi"}], "tool_choice": {"type": "any"},
			"tools": [{"type": "`+kind+`", "name": "`+name+`"}]}`); status != http.StatusOK {
			t.Errorf("%s: %d %s", kind, status, text)
		}
	}
}

// With any choice of tools but none, a grammar limits an answer to one call.
func TestParallelCallsCanBeDisabled(t *testing.T) {
	for choice, one := range map[string]bool{
		`{"type": "auto"}`: false, `{"type": "auto", "disable_parallel_tool_use": false}`: false,
		`{"type": "auto", "disable_parallel_tool_use": true}`: true, `{"type": "any", "disable_parallel_tool_use": true}`: true,
	} {
		q, err := decode(body.Parse([]byte(`{"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "tool_choice": `+choice+`, `+weather+`}`)), false)
		if err != nil || q.Parallel == one || q.Constrained != one {
			t.Errorf("%s: parallel %v, constrained %v, %v", choice, q.Parallel, q.Constrained, err)
		}
	}
}

// A call that the limit of tokens cuts off is neither a call nor text.
func TestCallsThatAreCutOffLeaveNothing(t *testing.T) {
	for n := 1; n < 24; n += 3 {
		request := fmt.Sprintf(`{"model": "thinker", "max_tokens": %d, "seed": 3, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, %s, "messages": [{"role": "user", "content": "Weather in Rome?"}]}`, n, weather)
		if m := ask(t, request); *m.StopReason == "max_tokens" && len(m.Content) > 0 {
			t.Errorf("%d tokens: %+v", n, m.Content[0])
		}
		_, text := post(t, "/v1/messages", strings.Replace(request, "{", `{"stream": true, `, 1))
		if strings.Contains(text, `"stop_reason":"max_tokens"`) && strings.Contains(text, "content_block_start") {
			t.Errorf("%d tokens, streamed: %s", n, text)
		}
	}
}

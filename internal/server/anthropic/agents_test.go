package anthropic

import (
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
)

// claudeCode is a request of the shape that Claude Code 2.1 sends, in words of our own: its
// fields, kinds of blocks and tools, the second turn of a conversation with calls.
const claudeCode = `{
	"model": "tiny", "max_tokens": 32000, "stream": true,
	"system": [
		{"type": "text", "text": "Who asks."},
		{"type": "text", "text": "Be of help.", "cache_control": {"type": "ephemeral"}},
		{"type": "text", "text": "With files.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
	"messages": [
		{"role": "user", "content": [{"type": "text", "text": "About the folder."}, {"type": "text", "text": "Look around."}]},
		{"role": "system", "content": [{"type": "text", "text": "News.", "cache_control": {"type": "ephemeral"}},
			{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "Late", "description": "Comes late", "input_schema": {"type": "object", "properties": {}}}}},
			{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Waiting"}}]},
		{"role": "assistant", "content": [
			{"type": "thinking", "thinking": "", "signature": "c2ln"},
			{"type": "text", "text": "I will."},
			{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a"}, "caller": {"type": "direct"}},
			{"type": "tool_use", "id": "toolu_2", "name": "ToolSearch", "input": {"query": "b"}}]},
		{"role": "user", "content": [
			{"type": "tool_result", "tool_use_id": "toolu_1", "content": "nothing", "is_error": true},
			{"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "tool_reference", "tool_name": "Waiting"}]},
			{"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]}],
	"tools": [
		{"name": "Read", "description": "Reads a file", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"], "additionalProperties": false}},
		{"name": "ToolSearch", "description": "Finds tools", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}}},
		{"name": "Waiting", "description": "To be found", "input_schema": {"type": "object", "properties": {}}, "defer_loading": true},
		{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
	"metadata": {"user_id": "someone"},
	"thinking": {"type": "adaptive", "display": "omitted"},
	"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
	"output_config": {"effort": "high"}}`

func TestClaudeCodesRequestsAreAnswered(t *testing.T) {
	q, err := decode(body.Parse([]byte(claudeCode)), false)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range q.Tools {
		names = append(names, tool.Name())
	}
	if got := strings.Join(names, " "); got != "Read ToolSearch Waiting Late" {
		t.Errorf("the tools are %s", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL+"/v1/messages?beta=true", strings.NewReader(strings.Replace(claudeCode, "32000", "3", 1)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer none")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("Anthropic-Beta", "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,advanced-tool-use-2025-11-20")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if want := "tools[].defer_loading, tools[].type=web_search_20250305"; resp.StatusCode != http.StatusOK || resp.Header.Get(body.Ignored) != want {
		t.Errorf("status %d, ignored %q, want %q", resp.StatusCode, resp.Header.Get(body.Ignored), want)
	}
}

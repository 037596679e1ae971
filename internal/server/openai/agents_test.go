package openai

import (
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

// The requests that coding agents send in the second turn of a conversation, rebuilt by hand in
// words of our own: their fields, kinds of messages, parts and tools.
var agentRequests = map[string]generatetest.Tolerated{
	"Codex 0.166": {responsesPath, `{
		"model": "tiny", "stream": true, "store": false, "tool_choice": "auto", "parallel_tool_calls": true,
		"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "a-session", "max_output_tokens": 3,
		"client_metadata": {"session_id": "a-session", "turn_id": "a-turn"},
		"input": [
			{"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "Be of help."}, {"type": "input_text", "text": "No network."}]},
			{"type": "additional_tools", "role": "developer", "tools": [{"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "function", "name": "plan", "description": "Plans", "strict": false, "parameters": {"type": "object", "properties": {}}}]}]},
			{"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": "Look around."}]},
			{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "content": null, "encrypted_content": "gAAAA"},
			{"type": "message", "id": "msg_3", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I will."}]},
			{"type": "function_call", "id": "fc_1", "name": "exec_command", "arguments": "{\"cmd\": \"ls\"}", "call_id": "call_1"},
			{"type": "function_call_output", "call_id": "call_1", "output": "a b"},
			{"type": "function_call", "id": "fc_2", "name": "send", "namespace": "agents", "arguments": "{}", "call_id": "call_2"},
			{"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "sent"}]},
			{"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "call_3", "name": "apply_patch", "input": "*** Begin\n*** End"},
			{"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
			{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}],
		"tools": [
			{"type": "function", "name": "exec_command", "description": "Runs", "strict": false, "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}, "login": {"type": "boolean"}}, "required": ["cmd"], "additionalProperties": false}},
			{"type": "namespace", "name": "agents", "description": "Others.", "tools": [
				{"type": "function", "name": "send", "description": "Sends", "strict": false, "parameters": {"type": "object", "properties": {"to": {"type": "string"}, "items": {"type": "array", "items": {"type": "object", "properties": {}, "additionalProperties": true}}}, "additionalProperties": false}}]},
			{"type": "custom", "name": "apply_patch", "description": "Changes files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin\" LF line* \"*** End\" LF?\nline: /[+-].*/ LF\n%import common.LF\n"}},
			{"type": "tool_search", "execution": "client", "description": "Finds", "parameters": {"type": "object", "properties": {}}},
			{"type": "web_search", "external_web_access": false}]}`, "tools[].type=tool_search, tools[].type=web_search", ""},
	"qwen-code 0.24": {chatPath, `{
		"model": "tiny", "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true},
		"messages": [
			{"role": "system", "content": "Be of help."},
			{"role": "user", "content": [{"type": "text", "text": "About the folder."}, {"type": "text", "text": "Look around."}]},
			{"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\": \"a\"}"}}]},
			{"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "nothing"}]},
			{"role": "assistant", "content": "Nothing.", "reasoning_content": "Hm."},
			{"role": "user", "content": [{"type": "text", "text": "Go on."}]}],
		"tools": [{"type": "function", "function": {"name": "read_file", "description": "Reads", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}]}`, "", ""},
	"opencode 1.18": {chatPath, `{
		"model": "tiny", "max_tokens": 3, "tool_choice": "auto", "stream": true, "stream_options": {"include_usage": true},
		"messages": [
			{"role": "system", "content": "Be of help."},
			{"role": "user", "content": "Look around."},
			{"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]},
			{"role": "tool", "tool_call_id": "call_1", "content": "a b"},
			{"role": "user", "content": "Go on."}],
		"tools": [{"type": "function", "function": {"name": "bash", "description": "Runs", "parameters": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"], "additionalProperties": false}}}]}`, "", ""},
	"pi 0.87": {chatPath, `{
		"model": "tiny", "max_completion_tokens": 3, "store": false, "stream": true, "stream_options": {"include_usage": true},
		"messages": [
			{"role": "system", "content": "Be of help."},
			{"role": "user", "content": [{"type": "text", "text": "Look around."}]},
			{"role": "assistant", "content": "Nothing."},
			{"role": "user", "content": [{"type": "text", "text": "Go on."}]}],
		"tools": [{"type": "function", "function": {"name": "read", "description": "Reads", "parameters": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string", "description": "which"}}}, "strict": false}}]}`, "", ""},
}

func TestAgentsRequestsAreAnswered(t *testing.T) {
	for name, c := range agentRequests {
		for _, model := range []string{"tiny", "thinker"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL+c[0], strings.NewReader(strings.Replace(c[1], `"tiny"`, `"`+model+`"`, 1)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer none")
			r.Header.Set("X-Stainless-Lang", "js")
			r.Header.Set("X-Codex-Beta-Features", "remote_compaction_v2")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK || resp.Header.Get(body.Ignored) != c[2] {
				t.Errorf("%s, %s: status %d, ignored %q, want %q", name, model, resp.StatusCode, resp.Header.Get(body.Ignored), c[2])
			}
			_ = resp.Body.Close()
		}
	}
}

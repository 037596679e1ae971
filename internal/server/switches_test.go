package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

// switched are requests of all protocols for an answer to the same conversation, with the effort
// of reasoning and whether thoughts are kept; and where the number of the prompt's tokens is.
var switched = []struct{ path, request, tokens string }{
	{"/v1/chat/completions", `{"model": "effort", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi."},
		{"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."}, {"role": "user", "content": "And?"}],
		"reasoning_effort": %q, "chat_template_kwargs": {"preserve_thinking": %v}}`, "usage.prompt_tokens"},
	{"/v1/responses", `{"model": "effort", "max_output_tokens": 1, "input": [{"role": "user", "content": "Hi."},
		{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "A greeting."}]},
		{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"}],
		"reasoning": {"effort": %q}, "chat_template_kwargs": {"preserve_thinking": %v}}`, "usage.input_tokens"},
	{"/v1/messages", `{"model": "effort", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi."},
		{"role": "assistant", "content": [{"type": "thinking", "thinking": "A greeting.", "signature": ""}, {"type": "text", "text": "Hello."}]},
		{"role": "user", "content": "And?"}], "thinking": {"type": "adaptive"},
		"output_config": {"effort": %q}, "chat_template_kwargs": {"preserve_thinking": %v}}`, "usage.input_tokens"},
	{"/api/chat", `{"model": "effort", "stream": false, "options": {"num_predict": 1}, "messages": [{"role": "user", "content": "Hi."},
		{"role": "assistant", "content": "Hello.", "thinking": "A greeting."}, {"role": "user", "content": "And?"}],
		"think": %q, "chat_template_kwargs": {"preserve_thinking": %v}}`, "prompt_eval_count"},
}

// TestSwitchesReachTheTemplate sends every effort of reasoning, with and without the reasoning
// of former turns: the prompt is the template's rendering with these variables, in every
// protocol. An effort that the template refuses is an error with its message.
func TestSwitchesReachTheTemplate(t *testing.T) {
	service, site := allProtocols(t, generatetest.Effort)
	m, done, err := service.Library.Use(t.Context(), generatetest.Effort)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	thought := "A greeting."
	seen := map[int]string{}
	for _, effort := range []string{"low", "medium", "high", "xhigh"} {
		for _, keep := range []bool{true, false} {
			want, err := m.CountTokens(t.Context(), foretoken.Conversation{
				Messages: []chat.Message{
					{Role: "user", Content: chat.Text("Hi.")},
					{Role: "assistant", Content: chat.Text("Hello."), ReasoningContent: &thought},
					{Role: "user", Content: chat.Text("And?")},
				},
				Variables: map[string]any{"reasoning_effort": effort, "preserve_thinking": keep},
			})
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("effort %s, thoughts kept %v", effort, keep)
			if other, ok := seen[want]; ok {
				t.Errorf("%s is as long as %s: the test sees no difference", what, other)
			}
			seen[want] = what
			for _, s := range switched {
				status, text := generatetest.Send(t, http.MethodPost, site.URL+s.path, fmt.Sprintf(s.request, effort, keep))
				if got := tokensOf(t, text); status != http.StatusOK || got[s.tokens] != want {
					t.Errorf("%s, %s: status %d, %d tokens, want %d: %s", s.path, what, status, got[s.tokens], want, text)
				}
			}
		}
	}
	for _, s := range switched[:3] {
		if status, text := generatetest.Send(t, http.MethodPost, site.URL+s.path, fmt.Sprintf(s.request, "max", true)); status != http.StatusBadRequest {
			t.Errorf("%s: an effort that the template refuses: status %d: %s", s.path, status, text)
		}
	}
}

// tokensOf are the numbers of tokens of a prompt in an answer, by where they are.
func tokensOf(t *testing.T, text string) map[string]int {
	t.Helper()
	var answer struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Input  int `json:"input_tokens"`
			Cached int `json:"cache_read_input_tokens"`
		} `json:"usage"`
		Evaluated int `json:"prompt_eval_count"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	u := answer.Usage
	return map[string]int{"usage.prompt_tokens": u.Prompt, "usage.input_tokens": u.Input + u.Cached, "prompt_eval_count": answer.Evaluated}
}

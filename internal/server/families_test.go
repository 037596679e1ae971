package server

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/server/anthropic"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
	"github.com/foretoken/foretoken/internal/server/ollama"
	"github.com/foretoken/foretoken/internal/server/openai"
)

const (
	cities   = `{"type": "object", "properties": {"city": {"enum": ["Rome", "Bern"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": false}`
	oneTool  = `"tools": [{"type": "function", "function": {"name": "weather", "parameters": ` + cities + `}}]`
	flatTool = `"tools": [{"type": "function", "name": "weather", "parameters": ` + cities + `}]`
)

// calling are requests of protocols for a call of weather, and where the texts of its arguments are
// in the stream and in the whole.
var calling = []struct{ path, request, streamed, whole, finish string }{
	{"/v1/chat/completions", `{"model": %q, "stream": %v, "seed": 4, "max_tokens": 200, "enable_thinking": false, "tool_choice": "required", "parallel_tool_calls": false,
		"messages": [{"role": "user", "content": "Weather?"}], ` + oneTool + `}`, "arguments", "arguments", `"finish_reason":"tool_calls"`},
	{"/v1/responses", `{"model": %q, "stream": %v, "seed": 4, "max_output_tokens": 200, "reasoning": {"effort": "none"}, "tool_choice": "required", "parallel_tool_calls": false,
		"input": "Weather?", ` + flatTool + `}`, "delta", "arguments", `"type":"function_call"`},
	{"/v1/messages", `{"model": %q, "stream": %v, "seed": 4, "max_tokens": 200, "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
		"messages": [{"role": "user", "content": "Weather?"}], "tools": [{"name": "weather", "input_schema": ` + cities + `}]}`, "partial_json", "input", `"stop_reason":"tool_use"`},
}

// allProtocols serves models by all protocols until the test ends.
func allProtocols(t *testing.T, models ...string) (*generate.Service, *httptest.Server) {
	t.Helper()
	service, end, err := generatetest.Open(models...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	mux := http.NewServeMux()
	openai.Register(body.On(mux, nil), service)
	anthropic.Register(body.On(mux, nil), service)
	ollama.Register(body.On(mux, nil), service)
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	return service, site
}

// TestCallsOfFamiliesReachAllProtocols has calls in the syntaxes of GLM, DeepSeek and Gemma, whole and as
// streams: the same, within their schema, and without a trace of the syntax.
func TestCallsOfFamiliesReachAllProtocols(t *testing.T) {
	families := []string{generatetest.Lines, generatetest.Tight, generatetest.Fenced, generatetest.Marked}
	service, site := allProtocols(t, families...)
	for _, model := range families {
		for _, c := range calling {
			_, whole := generatetest.Send(t, http.MethodPost, site.URL+c.path, fmt.Sprintf(c.request, model, false))
			_, stream := generatetest.Send(t, http.MethodPost, site.URL+c.path, fmt.Sprintf(c.request, model, true))
			said, pieces := texts(t, whole, c.whole), ""
			for line := range strings.Lines(stream) {
				if data, ok := strings.CutPrefix(line, "data: "); ok && strings.HasPrefix(data, "{") {
					pieces += texts(t, data, c.streamed)
				}
			}
			var arguments struct {
				City string
				Days int
			}
			if err := json.Unmarshal([]byte(said), &arguments); err != nil || arguments.City != "Rome" && arguments.City != "Bern" || arguments.Days < 1 || arguments.Days > 9 {
				t.Errorf("%s, %s: %s: %v", model, c.path, whole, err)
			}
			if compact(t, said) != compact(t, pieces) {
				t.Errorf("%s, %s: %s whole, %s streamed:\n%s", model, c.path, said, pieces, stream)
			}
			for _, text := range []string{whole, stream} {
				if strings.Contains(text, "arg_") || strings.Contains(text, "tool_call>") || strings.Contains(text, "tool▁") || strings.Contains(text, "call:") || !strings.Contains(text, c.finish) {
					t.Errorf("%s, %s: %s", model, c.path, text)
				}
			}
		}
	}
	// Ollama's clients cannot require a call, and the tiny model makes none by itself.
	for model, text := range map[string]string{
		generatetest.Tight:  `Let me see.<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>`,
		generatetest.Marked: `Let me see.<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>`,
		generatetest.Fenced: "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Rome\", \"days\": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	} {
		service.Read = func(a *foretoken.Answer) iter.Seq2[foretoken.Piece, error] {
			return say(t, a, service.Library, model, text)
		}
		for _, stream := range []bool{false, true} {
			_, got := generatetest.Send(t, http.MethodPost, site.URL+"/api/chat", fmt.Sprintf(`{"model": %q, "stream": %v, "think": false, "options": {"num_predict": 1},
				"messages": [{"role": "user", "content": "Weather?"}], %s}`, model, stream, oneTool))
			if !strings.Contains(got, `"name":"weather","arguments":{"city": "Rome", "days": 3}`) && !strings.Contains(got, `"name":"weather","arguments":{"city":"Rome","days":3}`) ||
				strings.Contains(got, "arg_") || strings.Contains(got, "tool▁") || strings.Count(got, "weather") != 1 {
				t.Errorf("%s, stream %v: %s", model, stream, got)
			}
		}
	}
}

// TestChannelsReachAllProtocols has an answer of a thought, words and a call in Gemma's notation: each is in
// its fields, and no tag is.
func TestChannelsReachAllProtocols(t *testing.T) {
	service, site := allProtocols(t, generatetest.Marked)
	service.Read = func(a *foretoken.Answer) iter.Seq2[foretoken.Piece, error] {
		return say(t, a, service.Library, generatetest.Marked, "<|channel>thought\nI look.\n<channel|>Let me see.<|tool_call>call:weather{city:<|\"|>Rome<|\"|>,days:3}<tool_call|>")
	}
	for _, c := range []struct{ path, request, thought, words string }{
		{"/v1/chat/completions", `{"model": %q, "stream": %v, "max_tokens": 1, "enable_thinking": true, "messages": [{"role": "user", "content": "Weather?"}], ` + oneTool + `}`, "reasoning_content", "content"},
		{"/v1/messages", `{"model": %q, "stream": %v, "max_tokens": 1, "messages": [{"role": "user", "content": "Weather?"}],
			"tools": [{"name": "weather", "input_schema": ` + cities + `}]}`, "thinking", "text"},
		{"/api/chat", `{"model": %q, "stream": %v, "think": true, "options": {"num_predict": 1}, "messages": [{"role": "user", "content": "Weather?"}], ` + oneTool + `}`, "thinking", "content"},
	} {
		for _, stream := range []bool{false, true} {
			_, got := generatetest.Send(t, http.MethodPost, site.URL+c.path, fmt.Sprintf(c.request, generatetest.Marked, stream))
			thought, words := "", ""
			for line := range strings.Lines(got) {
				line = strings.TrimPrefix(line, "data: ")
				if !strings.HasPrefix(line, "{") {
					continue
				}
				thought += texts(t, line, c.thought)
				words += texts(t, line, c.words)
			}
			if thought != "I look." || words != "Let me see." || !strings.Contains(got, "Rome") || strings.Contains(got, "<|") || strings.Contains(got, "|>") || strings.Contains(got, "call:") {
				t.Errorf("%s, stream %v: thought %q, words %q:\n%s", c.path, stream, thought, words, got)
			}
		}
	}
}

// say yields a text as an answer of the model, a few bytes at a time.
func say(t *testing.T, a *foretoken.Answer, library *library.Library, model, text string) iter.Seq2[foretoken.Piece, error] {
	return func(yield func(foretoken.Piece, error) bool) {
		m, done, err := library.Use(t.Context(), model)
		if err != nil {
			yield(foretoken.Piece{}, err)
			return
		}
		defer done()
		if err := a.Wait(); err != nil {
			yield(foretoken.Piece{}, err)
			return
		}
		template, err := dialogue.NewTemplate(private.Template(m, true))
		if err != nil {
			yield(foretoken.Piece{}, err)
			return
		}
		p := dialogue.NewParser(dialogue.ParserOptions{ToolFormat: private.CallSyntax(m).Reads(), Tags: template.Thinking().Tags})
		for len(text) > 0 {
			n := min(5, len(text))
			if !yield(foretoken.Piece{Events: p.Write(text[:n])}, nil) {
				return
			}
			text = text[n:]
		}
		yield(foretoken.Piece{Events: p.Close()}, nil)
	}
}

// texts joins the values of a key anywhere in a JSON object: texts, or else values.
func texts(t *testing.T, object, key string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(object), &v); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	out := ""
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for k, item := range v {
				if text, ok := item.(string); k != key {
					walk(item)
				} else if ok {
					out += text
				} else if inner, ok := item.(map[string]any); ok && key == "input" {
					text, _ := json.Marshal(inner)
					out += string(text)
				} else {
					walk(item)
				}
			}
		}
	}
	walk(v)
	return out
}

// compact is a JSON text in one way of writing it.
func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return text
	}
	out, _ := json.Marshal(v)
	return string(out)
}

package server

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// bodies are requests of an endpoint, with LIST where a list of worst elements stands. Each has one
// place where clients may send a list, or where the server ignores one.
var bodies = map[string][]string{
	"/v1/chat/completions": inChat, "/v1/chat/completions/render": inChat,
	"/v1/completions": inTexts, "/v1/completions/render": inTexts,
	"/v1/responses": inResponses, "/v1/responses/input_tokens": inResponses,
	"/v1/messages": inMessages, "/v1/messages/count_tokens": inMessages,
	"/api/chat": {
		`{"model": "tiny", "messages": LIST}`, `{"model": "tiny", "tools": LIST}`, `{"model": "tiny", "x": LIST}`,
		`{"model": "tiny", "messages": [{"role": "user", "content": "a", "images": LIST}]}`,
		`{"model": "tiny", "messages": [{"role": "assistant", "tool_calls": LIST}]}`,
		`{"model": "tiny", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": LIST}}}]}]}`,
		`{"model": "tiny", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"enum": LIST}}}]}`,
		`{"model": "tiny", "options": {"stop": LIST, "num_predict": 1}}`, `{"model": "tiny", "chat_template_kwargs": {"a": LIST}}`,
	},
	"/api/generate": {
		`{"model": "tiny", "prompt": "a", "images": LIST}`, `{"model": "tiny", "prompt": "a", "context": LIST}`,
		`{"model": "tiny", "options": {"stop": LIST}}`, `{"model": "tiny", "x": LIST}`, `{"model": "tiny", "chat_template_kwargs": {"a": LIST}}`,
	},
	"/api/show":   {`{"model": "tiny", "x": LIST}`},
	"/v1/batches": {`{"metadata": {"a": LIST}}`, `{"x": LIST}`},
}

var inChat = []string{
	`{"messages": LIST}`, `{"messages": [{"role": "user", "content": LIST}]}`,
	`{"messages": [{"role": "user", "content": "a", "x": LIST}]}`,
	`{"messages": [{"role": "assistant", "tool_calls": LIST}]}`,
	`{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": LIST}}}]}]}`,
	`{"messages": [{"role": "user", "content": [{"type": "video", "video": LIST}]}]}`,
	talk(`"tools": LIST`), talk(`"tools": [{"type": "function", "function": {"name": "f", "parameters": {"enum": LIST}}}]`),
	talk(`"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": LIST}}`),
	talk(`"stop": LIST`), talk(`"modalities": LIST`), talk(`"guided_choice": LIST`), talk(`"logit_bias": {"1": LIST}`),
	talk(`"chat_template_kwargs": {"a": LIST}`), talk(`"metadata": {"a": LIST}`), talk(`"x": LIST`), talk(`"foretoken": {"x": LIST}`),
}

var inTexts = []string{
	`{"prompt": LIST}`, `{"prompt": [LIST]}`, text(`"stop": LIST`), text(`"guided_choice": LIST`), text(`"logit_bias": {"1": LIST}`), text(`"metadata": LIST`), text(`"x": LIST`),
}

var inResponses = []string{
	`{"input": LIST}`, `{"input": [{"role": "user", "content": LIST}]}`, `{"input": [{"type": "reasoning", "summary": LIST}]}`,
	`{"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": LIST}}]}`,
	`{"input": [{"type": "additional_tools", "tools": LIST}]}`,
	`{"input": "a", "tools": LIST}`, `{"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {"enum": LIST}}]}`,
	`{"input": "a", "tools": [{"type": "namespace", "name": "n", "tools": LIST}]}`,
	`{"input": "a", "include": LIST}`, `{"input": "a", "chat_template_kwargs": {"a": LIST}}`, `{"input": "a", "metadata": LIST, "max_output_tokens": 1}`,
	`{"input": "a", "x": LIST, "max_output_tokens": 1}`,
}

var inMessages = func() (list []string) {
	for _, field := range []string{
		`"messages": LIST`, `"messages": [{"role": "user", "content": LIST}]`, `"system": LIST, "messages": []`,
		`"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"a": LIST}}]}]`,
		hi(`"tools": LIST`), hi(`"tools": [{"name": "f", "input_schema": {"enum": LIST}}]`), hi(`"tools": [{"name": "f", "input_schema": {}, "input_examples": LIST}]`),
		hi(`"stop_sequences": LIST`), hi(`"context_management": {"edits": LIST}`), hi(`"chat_template_kwargs": {"a": LIST}`),
		hi(`"metadata": {"a": LIST}`), hi(`"x": LIST`),
	} {
		list = append(list, `{"max_tokens": 1, `+field+`}`)
	}
	return list
}()

// hi is a message and another field.
func hi(field string) string { return `"messages": [{"role": "user", "content": "Hi."}], ` + field }

// unread are endpoints that take no JSON.
var unread = []string{
	"/v1/files", "/v1/batches/{id}/cancel", "/v1/embeddings", "/v1/responses/compact", "/api/embed", "/api/embeddings", "/api/pull", "/api/push", "/api/create", "/api/copy",
}

// elements take the most memory for their bytes.
var elements = []string{"{}", "[]", "0", `""`}

// full are lists of elements with the maximum number of values of a request.
var full = []struct {
	path, body, element string
	n                   int
}{
	{"/v1/chat/completions", `{"messages": LIST, "max_tokens": 1}`, `{"role": "user", "content": ""}`, generate.MaxMessages},
	{"/v1/chat/completions", `{"messages": [{"role": "user", "content": LIST}], "max_tokens": 1}`, `{"type": "text", "text": ""}`, body.MaxValues/3 - 9},
	{"/v1/chat/completions", `{"messages": [{"role": "assistant", "tool_calls": LIST}], "max_tokens": 1}`, `{"function": {"name": "f"}}`, body.MaxValues/3 - 9},
	{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "", "x": LIST}], "max_tokens": 1}`, "{}", body.MaxValues/2 - 9},
	{"/v1/chat/completions", talk(`"tools": LIST`), `{"type": "function", "function": {"name": "fN"}}`, generate.MaxTools},
	{"/v1/chat/completions", talk(`"tools": LIST`), `{"type": "web_search"}`, body.MaxValues/2 - 9},
	{"/v1/chat/completions", talk(`"chat_template_kwargs": {"a": LIST}`), "0", body.MaxValues/2 - 9},
	{"/v1/chat/completions", talk(`"chat_template_kwargs": {"a": {LIST}}`), `"aN":0`, body.MaxValues/2 - 9},
	{"/v1/chat/completions", talk(`"chat_template_kwargs": {LIST}`), `"aN":0`, 256},
	{"/v1/chat/completions", talk(`"logit_bias": {LIST}`), `"N":0`, 8000},
	{"/v1/chat/completions", `{LIST, "messages": [{"role": "user", "content": ""}], "max_tokens": 1}`, `"aN":0`, body.MaxValues - 9},
	{"/v1/completions", `{"prompt": [LIST], "max_tokens": 1}`, "0", 1 << 19},
	{"/v1/responses", `{"input": LIST, "max_output_tokens": 1}`, `{"role": "user", "content": ""}`, generate.MaxMessages},
	{"/v1/responses", `{"input": "a", "include": LIST, "max_output_tokens": 1}`, `""`, body.MaxValues - 9},
	{"/v1/messages", `{"messages": LIST, "max_tokens": 1}`, `{"role": "user", "content": ""}`, generate.MaxMessages},
	{"/v1/messages", `{"messages": [{"role": "user", "content": LIST}], "max_tokens": 1}`, `{"type": "text", "text": ""}`, body.MaxValues/3 - 9},
	{"/v1/messages", `{"max_tokens": 1, ` + hi(`"tools": LIST}`), `{"name": "fN", "input_schema": {}}`, generate.MaxTools},
	{"/v1/messages/count_tokens", `{"messages": LIST}`, `{"role": "user", "content": "a"}`, generate.MaxMessages},
	{"/api/chat", `{"model": "tiny", "messages": LIST, "options": {"num_predict": 1}}`, `{"role": "user", "content": "a"}`, generate.MaxMessages},
	{"/api/chat", `{"model": "tiny", "tools": LIST}`, `{"function": {"name": "fN"}}`, generate.MaxTools},
}

// TestMemoryOfBodies posts the lists that take the most memory for their bytes to every endpoint: an
// answer, or an error, may allocate 8 times the bytes and 32 MiB.
func TestMemoryOfBodies(t *testing.T) {
	r, _ := startBatches(t, t.TempDir(), nil)
	for pattern := range operations(openapiDocument(t)) {
		method, path, _ := strings.Cut(pattern, " ")
		if method == http.MethodPost && bodies[path] == nil && !slices.Contains(unread, path) {
			t.Errorf("%s is missing in this test", pattern)
		}
	}
	const size = 5 << 18 // bytes
	for path, list := range bodies {
		for i, form := range list {
			for n, element := range elements {
				if longer || n == i%len(elements) || n == 0 && i == 0 {
					r.measure(t, path, form, element, size/(len(element)+1))
				}
			}
		}
	}
	for _, x := range full {
		if a := r.measure(t, x.path, x.body, x.element, x.n); a.status >= http.StatusBadRequest && !strings.Contains(a.body.String(), "context") {
			t.Errorf("%s %s with %d of %s: %d %.200s", x.path, x.body, x.n, x.element, a.status, a.body.String())
		}
	}
}

// measure posts a body with a list of n elements and compares the allocated memory with the
// limit. N in an element becomes its number.
func (r *running) measure(t *testing.T, path, form, element string, n int) *answer {
	t.Helper()
	list := strings.TrimSuffix(strings.Repeat(element+",", n), ",")
	if strings.Contains(element, "N") {
		all := strings.Split(list, "N")
		for i := range n {
			all[i] += strconv.Itoa(i)
		}
		list = strings.Join(all, "")
	}
	text := strings.Replace(form, "{LIST", "{"+list, 1)
	text = strings.Replace(text, "LIST", "["+list+"]", 1)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(text))
	w := newAnswer()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.Handler().ServeHTTP(w, request)
	runtime.ReadMemStats(&after)
	got, most := after.TotalAlloc-before.TotalAlloc, uint64(8*len(text)+32<<20)
	if got > most || w.status >= http.StatusInternalServerError {
		t.Errorf("%s %s with %d of %s: status %d, %d bytes allocated for %d, want at most %d: %.150s", path, form, n, element, w.status, got, len(text), most, w.body.String())
	}
	return w
}

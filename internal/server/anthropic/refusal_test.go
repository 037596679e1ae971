package anthropic

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

func TestBadRequestsAreNamed(t *testing.T) {
	const hi = `"messages": [{"role": "user", "content": "Hi"}]`
	user := func(block string) string {
		return `{"max_tokens": 9, "messages": [{"role": "user", "content": [` + block + `]}]}`
	}
	assistant := func(block string) string {
		return `{"max_tokens": 9, "messages": [{"role": "assistant", "content": [` + block + `]}, {"role": "user", "content": "Hi"}]}`
	}
	strict := generatetest.Strict(t, Register, service)
	for _, c := range []struct{ request, want string }{
		{``, "the body is empty"},
		{`{`, "the body is not JSON"},
		{`[]`, "the body is an array, want a JSON object"},
		{`{}`, "max_tokens: this field is missing"},
		{`{"max_tokens": 9}`, "messages: this field is missing"},
		{`{"max_tokens": 9, "messages": []}`, "messages: there are no messages"},
		{`{"max_tokens": 9, "messages": "Hi"}`, `messages: the string "Hi", want an array`},
		{`{"max_tokens": 9, "messages": [1]}`, "messages[0]: 1, want an object"},
		{`{"max_tokens": 9, "messages": [{"content": "Hi"}]}`, "messages[0].role: this field is missing"},
		{`{"max_tokens": 9, "messages": [{"role": "tool", "content": "Hi"}]}`, `messages[0].role: "tool", want one of`},
		{`{"max_tokens": 9, "messages": [{"role": "user"}]}`, "messages[0].content: this field is missing"},
		{`{"max_tokens": 9, "messages": [{"role": "user", "content": 1}]}`, "messages[0].content: 1, want an array"},
		{`{"max_tokens": 9, "messages": [{"role": "user", "content": []}]}`, "messages[0].content: there are no blocks"},
		{`{"max_tokens": 9, "messages": [{"role": "system", "content": ""}]}`, "messages: the conversation has no message to answer"},
		{`{"max_tokens": 0, ` + hi + `}`, "max_tokens: 0, want a number from 1"},
		{`{"max_tokens": "9", ` + hi + `}`, `max_tokens: the string "9", want a whole number`},
		{`{"max_tokens": 1.5, ` + hi + `}`, "max_tokens: 1.5, want a whole number"},
		{`{"max_tokens": 9, "model": 1, ` + hi + `}`, "model: 1, want a string"},
		{`{"max_tokens": 9, "stream": "yes", ` + hi + `}`, `stream: the string "yes", want true or false`},
		{`{"max_tokens": 9, "temperature": "hot", ` + hi + `}`, `temperature: the string "hot", want a number`},
		{`{"max_tokens": 9, "temperature": -1, ` + hi + `}`, "temperature: -1, want a number from 0"},
		{`{"max_tokens": 9, "top_p": 2, ` + hi + `}`, "top_p: 2, want a number from 0 to 1"},
		{`{"max_tokens": 9, "top_k": -1, ` + hi + `}`, "top_k: -1, want a number from 0"},
		{`{"max_tokens": 9, "stop_sequences": "x", ` + hi + `}`, `stop_sequences: the string "x", want an array`},
		{`{"max_tokens": 9, "stop_sequences": [""], ` + hi + `}`, "stop_sequences[0]: the string is empty"},
		{`{"max_tokens": 9, "stop_sequences": [` + strings.Repeat(`"x",`, 16) + `"x"], ` + hi + `}`, "stop_sequences: 17 elements, want at most 16"},
		{`{"max_tokens": 9, "seed": -1, ` + hi + `}`, "seed: -1, want a number from 0"},
		{`{"max_tokens": 9, "mtp_depth": 99, ` + hi + `}`, `mtp_depth: 99, want 0 to 8, or "auto"`},
		{`{"max_tokens": 9, "system": 5, ` + hi + `}`, "system: 5, want an array"},
		{`{"max_tokens": 9, "system": [{"type": "image"}], ` + hi + `}`, "system[0].type: images are not allowed here: put the image into a user message"},
		{`{"max_tokens": 9, "thinking": true, ` + hi + `}`, "thinking: true, want an object"},
		{`{"max_tokens": 9, "thinking": {}, ` + hi + `}`, "thinking.type: this field is missing"},
		{`{"max_tokens": 9, "thinking": {"type": "hard"}, ` + hi + `}`, `thinking.type: "hard", want one of ["enabled" "disabled" "adaptive"]`},
		{`{"max_tokens": 9, "thinking": {"type": "enabled"}, ` + hi + `}`, "thinking.budget_tokens: this field is missing"},
		{`{"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 9}, ` + hi + `}`, "thinking.budget_tokens: 9, want less than max_tokens"},
		{`{"max_tokens": 9, "output_config": {"effort": "huge"}, ` + hi + `}`, `output_config.effort: "huge", want one of`},
		{`{"max_tokens": 9, "output_config": {"format": {"type": "xml"}}, ` + hi + `}`, `output_config.format.type: "xml", want one of`},
		{`{"max_tokens": 9, "output_format": {"type": "json_schema", "schema": 1}, ` + hi + `}`, "output_format.schema: want a JSON schema"},
		{`{"max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": {"type": "wat"}}}, ` + hi + `}`, "output_config.format: "},
		{`{"max_tokens": 9, "tools": [{"name": "a", "input_schema": {"type": "wat"}}], "tool_choice": {"type": "any"}, ` + hi + `}`, "tools: "},
		{`{"max_tokens": 9, "tools": {}, ` + hi + `}`, "tools: an object, want an array"},
		{`{"max_tokens": 9, "tools": [{}], ` + hi + `}`, "tools[0].name: this field is missing"},
		{`{"max_tokens": 9, "tools": [{"name": "a"}], ` + hi + `}`, "tools[0].input_schema: this field is missing"},
		{`{"max_tokens": 9, "tools": [{"name": "a", "input_schema": []}], ` + hi + `}`, "tools[0].input_schema: want a JSON schema"},
		{`{"max_tokens": 9, "tool_choice": {"type": "any"}, ` + hi + `}`, "tool_choice: a tool call is required, but there are no tools"},
		{`{"max_tokens": 9, "tool_choice": {"type": "tool", "name": "b"}, ` + hi + `}`, `tool_choice.name: there is no tool "b"`},
		{`{"max_tokens": 9, "tool_choice": "auto", ` + hi + `}`, `tool_choice: the string "auto", want an object`},
		{user(`{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}`), "messages[0].content[0].source.data: the image has no bytes"},
		{user(`{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}`), `messages[0].content[0].source.type: documents of type "base64" are not supported`},
		{user(`{"type": "tool_result", "tool_use_id": "x", "content": "y"}`), `messages[0].content[0].tool_use_id: "x": no tool_use block before it has this id`},
		{user(`{"type": "tool_use", "id": "x", "name": "y", "input": {}}`), "messages[0].content[0].type: tool calls are allowed in assistant messages only"},
		{user(`{"type": "thinking", "thinking": "x"}`), "messages[0].content[0].type: thinking blocks are allowed in assistant messages only"},
		{user(`{"type": "video"}`), `messages[0].content[0].type: blocks of type "video" are not supported`},
		{user(`{"text": "x"}`), "messages[0].content[0].type: this field is missing"},
		{assistant(`{"type": "tool_use", "id": "x", "name": "y", "input": "z"}`), "messages[0].content[0].input: want the arguments as an object"},
		{assistant(`{"type": "tool_result", "tool_use_id": "x"}`), "messages[0].content[0].type: tool results are allowed in user messages only"},
		{`{"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " "}]}`, "messages[1].content: the prefilled text of the answer is empty"},
		{`{"max_tokens": 9, "thinking": {"type": "adaptive"}, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}`, "messages: an assistant message at the end is continued"},
	} {
		status, text := post(t, "/v1/messages", c.request)
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v: %s", c.request, err, text)
		}
		if status != http.StatusBadRequest || p.Type != "error" || p.Error.Type != "invalid_request_error" || !strings.HasPrefix(p.Error.Message, c.want) {
			t.Errorf("%s\n got %d %+v\nwant %q", c.request, status, p, c.want)
		}
		if status, _, text := generatetest.Post(t, strict+"/v1/messages", c.request); status != http.StatusBadRequest {
			t.Errorf("%s, strictly: %d %s", c.request, status, text)
		}
	}
}

func TestErrorsHaveTheProtocolsTypes(t *testing.T) {
	status, text := post(t, "/v1/messages", `{"model": "gpt-9", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}`)
	if status != http.StatusNotFound || !strings.Contains(text, `"not_found_error"`) || !strings.Contains(text, "tiny") {
		t.Errorf("unknown model: %d %s", status, text)
	}
	status, text = post(t, "/v1/messages", `{"max_tokens": 9, "messages": [{"role": "user", "content": "`+strings.Repeat("cat ", 2000)+`"}]}`)
	if status != http.StatusBadRequest || !strings.Contains(text, "the context has 1024") {
		t.Errorf("long prompt: %d %s", status, text)
	}
	for status, want := range map[int]string{429: "rate_limit_error", 503: "overloaded_error", 413: "request_too_large", 401: "authentication_error", 500: "api_error", 502: "api_error"} {
		if got := wire(&generate.Error{Status: status}, "").Error.Type; got != want {
			t.Errorf("status %d is %q, want %q", status, got, want)
		}
	}
}

func TestBodyOverTheLimitIsRefused(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(requests["text"]))
	r.Body = http.MaxBytesReader(w, r.Body, 10)
	answer, err := (&handler{service: service, threads: newThreads()}).create(w, r, generate.Caller{})
	if e := generate.Wrap(err); e.Status != http.StatusRequestEntityTooLarge || wire(err, "").Error.Type != "request_too_large" {
		t.Errorf("%v, %v", answer, err)
	}
}

func TestCountEqualsUsage(t *testing.T) {
	for name, request := range requests {
		if n, u := counted(t, request), ask(t, request).Usage; n != u.Input+u.CacheRead {
			t.Errorf("%s: counted %d, used %+v", name, n, u)
		}
	}
	if status, text := post(t, "/v1/messages/count_tokens", `{}`); status != http.StatusBadRequest || !strings.Contains(text, "messages: this field is missing") {
		t.Errorf("%d %s", status, text)
	}
}

func FuzzDecode(f *testing.F) {
	for _, request := range requests {
		f.Add([]byte(request))
	}
	f.Add([]byte(`{"max_tokens": 1e2, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "b"}]}, {"type": "document", "title": "t", "source": {"type": "text", "data": "d"}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, count := range []bool{false, true} {
			q, err := decode(body.Parse(data), count)
			switch {
			case err != nil:
				if e := generate.Wrap(err); e.Status != http.StatusBadRequest || e.Message == "" {
					t.Errorf("%q: %+v", data, e)
				}
			case len(q.Messages) == 0 && q.Prefill == "":
				t.Errorf("%q has no messages and was taken", data)
			case !count && q.MaxTokens < 1:
				t.Errorf("%q has no limit and was taken", data)
			}
		}
	})
}

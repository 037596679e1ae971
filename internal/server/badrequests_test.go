package server

import (
	"slices"
	"strings"
	"testing"
)

// bad is a request, and the expected response.
type bad struct {
	method, path, body string
	status             int
	says               string
}

// talk is a request with a message and some more fields.
func talk(more string) string {
	return `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4, ` + more + `}`
}

// text is a request for a completion.
func text(more string) string { return `{"prompt": "Hi", "max_tokens": 4, ` + more + `}` }

// A strict server refuses bad requests, and those with ignored fields.
func TestStrictServersRefuseMore(t *testing.T) {
	r := start(t, func(o *Options) { o.StrictFields = true })
	for _, x := range slices.Concat(badRequests, badIfStrict) {
		a := r.do(x.method, x.path, x.body)
		if a.status != x.status || x.says == "" || !strings.Contains(a.body, x.says) || a.header.Get("Foretoken-Ignored") != "" {
			t.Errorf("%s %s %.200s\n\tgot  %d %s\twant %d %s", x.method, x.path, x.body, a.status, a.body, x.status, x.says)
		}
	}
}

// Other servers name ignored fields in a header and in the log.
func TestIgnoredFieldsAreNamed(t *testing.T) {
	r := start(t, nil)
	for _, x := range badIfStrict {
		a := r.do(x.method, x.path, x.body)
		if a.status != 200 || a.header.Get("Foretoken-Ignored") == "" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s %s %.200s\n\tgot  %d %v %s", x.method, x.path, x.body, a.status, a.header, a.body)
		}
	}
	a := r.do("POST", chatPath, talk(`"color": "blue", "stream": true`))
	if got := a.header.Get("Foretoken-Ignored"); a.status != 200 || got != "color" {
		t.Errorf("streamed: %d, ignored %q", a.status, got)
	}
	if err := r.Shutdown(t.Context()); err != nil { // after which all lines are written
		t.Fatal(err)
	}
	if log := r.log.String(); !strings.Contains(log, `msg="ignored fields"`) || !strings.Contains(log, "fields=color") {
		t.Errorf("the log is %s", log)
	}
}

func TestBadRequests(t *testing.T) {
	r := start(t, nil)
	for _, x := range badRequests {
		a := r.do(x.method, x.path, x.body)
		if a.status != x.status || x.says == "" || !strings.Contains(a.body, x.says) {
			t.Errorf("%s %s %.200s\n\tgot  %d %s\twant %d %s", x.method, x.path, x.body, a.status, a.body, x.status, x.says)
		}
	}
	if !r.idle() {
		t.Errorf("something runs: %+v", r.stats())
	}
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("after all that: %+v", a)
	}
}

// badRequests are refused by every server. Tests of the protocols have more.
var badRequests = []bad{
	{"GET", "/v2/models", "", 404, `there is no endpoint GET /v2/models; /openapi.json lists the endpoints`},
	{"GET", "/nothing", "", 404, `there is no endpoint GET /nothing; /openapi.json lists the endpoints`},
	{"POST", "/v1/chat/completion", "{}", 404, `there is no endpoint POST /v1/chat/completion; /openapi.json lists the endpoints`},
	{"POST", "/v1/files", "{}", 404, `this server does not support batches: it was started with --no-batches, or without a folder for batches (--state-dir)`},
	{"GET", "/v1/batches/batch_1", "", 404, `this server does not support batches: it was started with --no-batches, or without a folder for batches (--state-dir)`},
	{"POST", "/", "{}", 405, `/ does not support POST, use GET`},
	{"GET", chatPath, "", 405, `/v1/chat/completions does not support GET, use POST`},
	{"DELETE", "/v1/models", "", 405, `/v1/models does not support DELETE, use GET`},
	{"PUT", "/v1/messages", "{}", 405, `/v1/messages does not support PUT, use POST`},
	{"GET", "/v1/models/absent", "", 404, `model: there is no model \"absent\"; available: [\"tiny\"]`},
	{"GET", "/v1/responses/absent", "", 404, `id: there is no stored response \"absent\": it was not stored, was deleted, or was evicted`},
	{"POST", chatPath, `"x"`, 400, `the body is the string \"x\", want a JSON object`},
	{"POST", chatPath, `{} {}`, 400, `the body is not JSON: invalid character '{' after top-level value, at byte 4`},
	{"POST", chatPath, "\xff\xfe", 400, `the body is not JSON: invalid character 'ÿ' looking for beginning of value, at byte 1`},
	{"POST", chatPath, talk(`"seed": "x"`), 400, `seed: the string \"x\", want a whole number`},
	{"POST", "/v1/completions", `{"prompt": {"a": 5}}`, 400, `prompt: an object, want an array`},
	{"POST", "/v1/completions", text(`"model": "absent"`), 404, `model: unknown model \"absent\"; available: [\"tiny\"]`},
	{"POST", "/v1/responses/compact", `{"input": "a"}`, 400, `conversations are not compacted here`},
	{"POST", "/v1/responses/input_tokens", `{}`, 400, `input: this field is missing`},
	{"POST", "/v1/responses", `{"input": 5}`, 400, `input: 5, want an array`},
	{"POST", "/v1/responses", `{"input": "Hi.", "model": "absent"}`, 404, `model: unknown model \"absent\"; available: [\"tiny\"]`},
	{"DELETE", "/v1/responses/absent", "", 404, `id: there is no stored response \"absent\": it was not stored, was deleted, or was evicted`},
	{"POST", "/v1/messages", `{`, 400, `the body is not JSON: unexpected end of JSON input, at byte 1`},
	{"POST", "/v1/messages", `{"max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}`, 400, `messages[0].content[0].source.type: this field is missing`},
	{"POST", "/v1/messages", talk(`"model": "claude-9"`), 404, `model: unknown model \"claude-9\"; available: [\"tiny\"]`},
	{"POST", "/v1/messages/count_tokens", `{"messages": 5}`, 400, `messages: 5, want an array`},
	{"POST", "/api/chat", `{`, 400, `the body is not JSON: unexpected end of JSON input, at byte 1`},
	{"POST", "/api/chat", `{"model": "tiny", "messages": [{"role": "user", "content": "Hi."}], "options": {"temperature": "x"}}`, 400, `options.temperature: the string \"x\", want a number`},
	{"POST", "/api/chat", `{"model": "tiny", "messages": [{"role": "user", "content": "Hi."}], "format": 5}`, 400, `format: 5, want a string`},
	{"POST", "/api/pull", `{"model": "x"}`, 501, `not supported: models are fetched on the server's machine: foretoken pull NAME`},
}

// badIfStrict are requests of which something is ignored, unless the server is strict.
var badIfStrict = []bad{
	{"POST", chatPath, talk(`"audio": {"voice": "x"}`), 400, `audio: this field is not supported: leave it out`},
	{"POST", chatPath, talk(`"color": "blue"`), 400, `color: this field is not supported: leave it out`},
	{"POST", chatPath, talk(`"foretoken": {"recipe": true}`), 400, `foretoken.recipe: this field is not supported: leave it out`},
	{"POST", chatPath, talk(`"tools": [{"type": "laser", "function": {"name": "f"}}]`), 400, `tools[0].type: tools of type \"laser\" are not supported: use functions, which the client runs`},
	{"POST", "/v1/completions", text(`"messages": []`), 400, `messages: this field is not supported: leave it out`},
	{"POST", "/v1/responses", `{"input": "Hi.", "max_output_tokens": 2, "tools": [{"type": "web_search"}]}`, 400, `tools[0].type: tools of type \"web_search\" are not supported: use functions, which the client runs`},
	{"POST", "/v1/messages", talk(`"color": "blue"`), 400, `color: this field is not supported: leave it out`},
	{"POST", "/api/generate", `{"model": "tiny", "prompt": "x", "options": {"num_predict": 2}, "color": 5}`, 400, `color: this field is not supported: leave it out`},
}

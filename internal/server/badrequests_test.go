package server

import (
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
	for _, list := range [][]bad{badAnywhere, badChats, badTools, badTexts, badResponses, badMessages, badOllama, badIfStrict} {
		for _, x := range list {
			a := r.do(x.method, x.path, x.body)
			if a.status != x.status || x.says == "" || !strings.Contains(a.body, x.says) || a.header.Get("Foretoken-Ignored") != "" {
				t.Errorf("%s %s %.200s\n\tgot  %d %s\twant %d %s", x.method, x.path, x.body, a.status, a.body, x.status, x.says)
			}
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
	for _, list := range [][]bad{badAnywhere, badChats, badTools, badTexts, badResponses, badMessages, badOllama} {
		for _, x := range list {
			a := r.do(x.method, x.path, x.body)
			if a.status != x.status || x.says == "" || !strings.Contains(a.body, x.says) {
				t.Errorf("%s %s %.200s\n\tgot  %d %s\twant %d %s", x.method, x.path, x.body, a.status, a.body, x.status, x.says)
			}
		}
	}
	if !r.idle() {
		t.Errorf("something runs: %+v", r.stats())
	}
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("after all that: %+v", a)
	}
}

var badAnywhere = []bad{
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
	{"POST", "/v1/embeddings", `{"input": "x"}`, 400, `embeddings are not supported: the models generate text and are not trained for embeddings`},
	{"GET", "/v1/responses/absent", "", 404, `id: there is no stored response \"absent\": it was not stored, was deleted, or was evicted`},
}

var badChats = []bad{
	{"POST", chatPath, ``, 400, `the body is empty, want a JSON object`},
	{"POST", chatPath, `{`, 400, `the body is not JSON: unexpected end of JSON input, at byte 1`},
	{"POST", chatPath, `[]`, 400, `the body is an array, want a JSON object`},
	{"POST", chatPath, `"x"`, 400, `the body is the string \"x\", want a JSON object`},
	{"POST", chatPath, `{} {}`, 400, `the body is not JSON: invalid character '{' after top-level value, at byte 4`},
	{"POST", chatPath, "\xff\xfe", 400, `the body is not JSON: invalid character 'ÿ' looking for beginning of value, at byte 1`},
	{"POST", chatPath, `{}`, 400, `messages: this field is missing`},
	{"POST", chatPath, `{"messages": null}`, 400, `messages: this field is missing`},
	{"POST", chatPath, `{"messages": []}`, 400, `messages: the list is empty, want at least one message`},
	{"POST", chatPath, `{"messages": "Hi."}`, 400, `messages: the string \"Hi.\", want an array`},
	{"POST", chatPath, `{"messages": [5]}`, 400, `messages[0]: want an object with role and content`},
	{"POST", chatPath, `{"messages": [{}]}`, 400, `messages[0].role: this field is missing`},
	{"POST", chatPath, `{"messages": [{"role": "wizard", "content": "x"}]}`, 400, `messages[0].role: \"wizard\", want one of [\"system\" \"developer\" \"user\" \"assistant\" \"tool\"]`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": 5}]}`, 400, `messages[0].content: want a string, an array of parts or null`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}`, 400, `messages[0].content[0].image_url.url: want a data: URL, as data:image/png;base64, with the image, or an http or https URL`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}`, 400, `messages[0].content[0].type: parts of type \"hologram\" are not supported: send text or images`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`, 400, `messages[0].content[0].text: this field is missing`},
	{"POST", chatPath, talk(`"model": "gpt-9"`), 404, `model: unknown model \"gpt-9\"; available: [\"tiny\"]`},
	{"POST", chatPath, talk(`"model": 5`), 400, `model: 5, want a string`},
	{"POST", chatPath, talk(`"temperature": "hot"`), 400, `temperature: the string \"hot\", want a number`},
	{"POST", chatPath, talk(`"temperature": -1`), 400, `temperature: -1, want a number from 0 to 100`},
	{"POST", chatPath, talk(`"top_p": 1.5`), 400, `top_p: 1.5, want a number from 0 to 1`},
	{"POST", chatPath, talk(`"top_k": 1.5`), 400, `top_k: 1.5, want a whole number`},
	{"POST", chatPath, talk(`"min_p": 2`), 400, `min_p: 2, want a number from 0 to 1`},
	{"POST", chatPath, talk(`"n": 0`), 400, `n: 0, want a number from 1 to 16`},
	{"POST", chatPath, talk(`"n": 1000`), 400, `n: 1000, want a number from 1 to 16`},
	{"POST", chatPath, talk(`"max_completion_tokens": 7`), 400, `max_tokens: 4, but another field sets the same limit to 7: leave one of them out`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 0}`, 400, `max_tokens: 0, want a number from 1 to 2147483647`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": -5}`, 400, `max_tokens: -5, want a number from 1 to 2147483647`},
	{"POST", chatPath, talk(`"stop": [""]`), 400, `stop[0]: the string is empty`},
	{"POST", chatPath, talk(`"stop": 5`), 400, `stop: 5, want an array`},
	{"POST", chatPath, talk(`"stream": "yes"`), 400, `stream: the string \"yes\", want true or false`},
	{"POST", chatPath, talk(`"stream_options": {"include_usage": true}`), 400, `stream_options: this needs stream set to true`},
	{"POST", chatPath, talk(`"logit_bias": {"cat": 5}`), 400, `logit_bias: the name \"cat\" is not a token id`},
	{"POST", chatPath, talk(`"logit_bias": {"99999999": 5}`), 400, `logit_bias: 99999999 is not a token of the model; its ids are 0 to 8195`},
	{"POST", chatPath, talk(`"logit_bias": [1]`), 400, `logit_bias: want an object of token ids with numbers, as {\"42\": -100}`},
	{"POST", chatPath, talk(`"top_logprobs": 5`), 400, `top_logprobs: alternatives need log-probabilities: set logprobs to true`},
	{"POST", chatPath, talk(`"logprobs": true, "top_logprobs": 500`), 400, `top_logprobs: 500, want a number from 0 to 20`},
	{"POST", chatPath, talk(`"seed": "x"`), 400, `seed: the string \"x\", want a whole number`},
	{"POST", chatPath, talk(`"presence_penalty": 1000`), 400, `presence_penalty: 1000, want a number from -100 to 100`},
	{"POST", chatPath, talk(`"xtc_threshold": 0.9`), 400, `xtc_threshold: 0.9, want a number from 0 to 0.5`},
	{"POST", chatPath, talk(`"response_format": {"type": "yaml"}`), 400, `response_format.type: \"yaml\", want one of [\"text\" \"json_object\" \"json_schema\"]`},
	{"POST", chatPath, talk(`"response_format": {"type": "json_schema"}`), 400, `response_format.json_schema: this field is missing`},
	{"POST", chatPath, talk(`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}`), 400, `response_format: structured output: grammar: schema: #/type: \"nonsense\" is not a type of JSON`},
	{"POST", chatPath, talk(`"reasoning_effort": "very"`), 400, `reasoning_effort: \"very\", want one of [\"none\" \"minimal\" \"low\" \"medium\" \"high\" \"xhigh\" \"max\"]`},
	{"POST", chatPath, talk(`"mtp_depth": 99`), 400, `mtp_depth: 99, want 0 to 8, or \"auto\"`},
	{"POST", chatPath, talk(`"modalities": ["audio"]`), 400, `modalities[0]: \"audio\", want one of [\"text\"]`},
	{"POST", chatPath, `{"messages": [{"role": "user", "content": "` + strings.Repeat("word ", 5000) + `"}]}`, 400, `messages: the prompt has 5011 tokens, but the context has 4096 for prompt and answer: shorten the prompt`},
}

var badTools = []bad{
	{"POST", chatPath, talk(`"tools": 5`), 400, `tools: 5, want an array`},
	{"POST", chatPath, talk(`"tools": [{"type": "function"}]`), 400, `tools[0].function: this field is missing`},
	{"POST", chatPath, talk(`"tools": [{"type": "function", "function": {"name": 5}}]`), 400, `tools[0].function.name: 5, want a string`},
	{"POST", chatPath, talk(`"tools": [{"type": "function", "function": {"name": "f", "parameters": 7}}]`), 400, `tools[0].function.parameters: want a JSON schema, which is an object`},
	{"POST", chatPath, talk(`"tool_choice": "required"`), 400, `tool_choice: there are no tools`},
	{"POST", chatPath, talk(`"tool_choice": "perhaps"`), 400, `tool_choice: there are no tools`},
	{"POST", chatPath, talk(`"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}`), 400, `tool_choice: there is no tool \"g\"`},
	{"POST", chatPath, talk(`"functions": [{"name": "f"}]`), 400, `functions: functions are not supported: use tools, which replaced them`},
	{"POST", chatPath, `{"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{"}}]}, {"role": "user", "content": "x"}]}`, 400, `messages[0].tool_calls[0].function.arguments: want a JSON object, or a string with a JSON object`},
}

var badTexts = []bad{
	{"POST", "/v1/completions", `{}`, 400, `prompt: this field is missing`},
	{"POST", "/v1/completions", `{"prompt": ""}`, 400, `prompt: the prompt is empty`},
	{"POST", "/v1/completions", `{"prompt": 5}`, 400, `prompt: 5, want an array`},
	{"POST", "/v1/completions", `{"prompt": [99999999]}`, 400, `prompt: 99999999 is not a token of the model; its ids are 0 to 8255`},
	{"POST", "/v1/completions", `{"prompt": [-1]}`, 400, `prompt[0]: -1, want a number from 0 to 2147483647`},
	{"POST", "/v1/completions", `{"prompt": ["a", 5]}`, 400, `prompt[1]: 5, want an array`},
	{"POST", "/v1/completions", `{"prompt": {"a": 5}}`, 400, `prompt: an object, want an array`},
	{"POST", "/v1/completions", text(`"model": "absent"`), 404, `model: unknown model \"absent\"; available: [\"tiny\"]`},
	{"POST", "/v1/completions", text(`"suffix": "end"`), 400, `suffix: a suffix is not supported: texts are continued at their end only`},
	{"POST", "/v1/completions", text(`"best_of": 5`), 400, `best_of: choosing the best 1 of 5 answers is not supported: get all of them with n`},
	{"POST", "/v1/completions", text(`"logprobs": -1`), 400, `logprobs: -1, want a number from 0 to 20`},
	{"POST", "/v1/completions", text(`"echo": 5`), 400, `echo: 5, want true or false`},
}

var badResponses = []bad{
	{"POST", "/v1/responses/compact", `{"input": "a"}`, 400, `conversations are not compacted here`},
	{"POST", "/v1/responses/input_tokens", `{}`, 400, `input: this field is missing`},
	{"POST", "/v1/responses", `{}`, 400, `input: this field is missing`},
	{"POST", "/v1/responses", `{"input": 5}`, 400, `input: 5, want an array`},
	{"POST", "/v1/responses", `{"input": [{"type": "dance"}]}`, 400, `input[0].type: items of type \"dance\" are not supported: want message, reasoning, function_call or function_call_output`},
	{"POST", "/v1/responses", `{"input": "Hi.", "previous_response_id": "resp_none"}`, 404, `previous_response_id: there is no stored response \"resp_none\": it was not stored, was deleted, or was evicted`},
	{"POST", "/v1/responses", `{"input": "Hi.", "background": true}`, 400, `background: background responses are not supported: stream the response`},
	{"POST", "/v1/responses", `{"input": "Hi.", "model": "absent"}`, 404, `model: unknown model \"absent\"; available: [\"tiny\"]`},
	{"POST", "/v1/responses", `{"input": "Hi.", "max_output_tokens": 0}`, 400, `max_output_tokens: 0, want a number from 1 to 2147483647`},
	{"DELETE", "/v1/responses/absent", "", 404, `id: there is no stored response \"absent\": it was not stored, was deleted, or was evicted`},
}

var badMessages = []bad{
	{"POST", "/v1/messages", `{`, 400, `the body is not JSON: unexpected end of JSON input, at byte 1`},
	{"POST", "/v1/messages", `{}`, 400, `max_tokens: this field is missing`},
	{"POST", "/v1/messages", `{"messages": [{"role": "user", "content": "Hi."}]}`, 400, `max_tokens: this field is missing`},
	{"POST", "/v1/messages", `{"max_tokens": 4, "messages": []}`, 400, `messages: there are no messages`},
	{"POST", "/v1/messages", `{"max_tokens": 4, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}`, 400, `messages[0].content[0].source.type: this field is missing`},
	{"POST", "/v1/messages", talk(`"model": "claude-9"`), 404, `model: unknown model \"claude-9\"; available: [\"tiny\"]`},
	{"POST", "/v1/messages", talk(`"temperature": 7000`), 400, `temperature: 7000, want a number from 0 to 100`},
	{"POST", "/v1/messages", talk(`"thinking": {"type": "deep"}`), 400, `thinking.type: \"deep\", want one of [\"enabled\" \"disabled\" \"adaptive\"]`},
	{"POST", "/v1/messages", talk(`"tool_choice": {"type": "any"}`), 400, `tool_choice: a tool call is required, but there are no tools`},
	{"POST", "/v1/messages", talk(`"stop_sequences": "x"`), 400, `stop_sequences: the string \"x\", want an array`},
	{"POST", "/v1/messages/count_tokens", `{"messages": 5}`, 400, `messages: 5, want an array`},
}

var badOllama = []bad{
	{"POST", "/api/chat", `{`, 400, `the body is not JSON: unexpected end of JSON input, at byte 1`},
	{"POST", "/api/chat", `{"model": "absent", "messages": [{"role": "user", "content": "Hi."}]}`, 404, `model: unknown model \"absent\"; available: [\"tiny\"]`},
	{"POST", "/api/chat", `{"model": "tiny", "messages": 5}`, 400, `messages: 5, want an array`},
	{"POST", "/api/chat", `{"model": "tiny", "messages": [{"role": "user", "content": "Hi.", "images": ["x"]}]}`, 400, `messages[0].images[0]: the data is not base64`},
	{"POST", "/api/chat", `{"model": "tiny", "messages": [{"role": "user", "content": "Hi."}], "options": {"temperature": "x"}}`, 400, `options.temperature: the string \"x\", want a number`},
	{"POST", "/api/chat", `{"model": "tiny", "messages": [{"role": "user", "content": "Hi."}], "format": 5}`, 400, `format: 5, want a string`},
	{"POST", "/api/generate", `{"model": "tiny", "prompt": 5}`, 400, `prompt: 5, want a string`},
	{"POST", "/api/show", `{"model": "absent"}`, 404, `model: unknown model \"absent\"; available: [\"tiny\"]`},
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

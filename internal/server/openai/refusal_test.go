package openai

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// refusal is a bad request with the expected error.
type refusal struct {
	path, request string
	status        int
	param, says   string
}

var refusals = []refusal{
	{chatPath, ``, 400, "", `the body is empty, want a JSON object`},
	{chatPath, `{`, 400, "", `the body is not JSON: unexpected end of JSON input, at byte 1`},
	{chatPath, `[]`, 400, "", `the body is an array, want a JSON object`},
	{chatPath, `{}`, 400, "messages", `this field is missing`},
	{chatPath, `{"messages": []}`, 400, "messages", `the list is empty, want at least one message`},
	{chatPath, `{"messages": "Hi."}`, 400, "messages", `the string "Hi.", want an array`},
	{chatPath, `{"messages": [5]}`, 400, "messages[0]", `want an object with role and content`},
	{chatPath, `{"messages": [{}]}`, 400, "messages[0].role", `this field is missing`},
	{chatPath, `{"messages": [{"role": "wizard", "content": "x"}]}`, 400, "messages[0].role", `"wizard", want one of ["system" "developer" "user" "assistant" "tool"]`},
	{chatPath, `{"messages": [{"role": "function", "content": "hi"}]}`, 400, "messages[0].role", "want one of"},
	{chatPath, `{"messages": [{"role": "user", "content": 5}]}`, 400, "messages[0].content", `want a string, an array of parts or null`},
	{chatPath, `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}`, 400, "messages[0].content[0].image_url.url", `want a data: URL, as data:image/png;base64, with the image, or an http or https URL`},
	{chatPath, `{"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}`, 400, "messages[0].content[0].type", `parts of type "hologram" are not supported: send text or images`},
	{chatPath, `{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`, 400, "messages[0].content[0].text", `this field is missing`},
	{chatPath, `{"messages": [{"role": "user", "content": [5]}]}`, 400, "messages[0].content[0]", "want an object with a type"},
	{chatPath, `{"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{"}}]}, {"role": "user", "content": "x"}]}`, 400, "messages[0].tool_calls[0].function.arguments", `want a JSON object, or a string with a JSON object`},
	{chatPath, `{"messages": [{"role": "assistant", "content": "", "function_call": {}}]}`, 400, "messages[0].function_call", "use tool_calls"},
	{chatPath, `{` + story + `, "model": "gpt-9"}`, 404, "model", `unknown model "gpt-9"; available:`},
	{chatPath, `{` + story + `, "model": 5}`, 400, "model", `5, want a string`},
	{chatPath, `{` + story + `, "temperature": "hot"}`, 400, "temperature", `the string "hot", want a number`},
	{chatPath, `{` + story + `, "temperature": -1}`, 400, "temperature", `-1, want a number from 0 to 100`},
	{chatPath, `{` + story + `, "top_p": 1.5}`, 400, "top_p", `1.5, want a number from 0 to 1`},
	{chatPath, `{` + story + `, "top_k": -2}`, 400, "top_k", "from -1"},
	{chatPath, `{` + story + `, "top_k": 1.5}`, 400, "top_k", `1.5, want a whole number`},
	{chatPath, `{` + story + `, "seed": -5}`, 400, "seed", "from -1"},
	{chatPath, `{` + story + `, "n": 0}`, 400, "n", `0, want a number from 1 to 16`},
	{chatPath, `{` + story + `, "n": 1000}`, 400, "n", `1000, want a number from 1 to 16`},
	{chatPath, `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 0}`, 400, "max_tokens", `0, want a number from 1 to 2147483647`},
	{chatPath, `{` + story + `, "max_tokens": 3, "max_completion_tokens": 4}`, 400, "max_tokens", "same limit to 4"},
	{chatPath, `{` + story + `, "stop": [""]}`, 400, "stop[0]", `the string is empty`},
	{chatPath, `{` + story + `, "stop": 5}`, 400, "stop", `5, want an array`},
	{chatPath, `{` + story + `, "stop": ["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"]}`, 400, "stop", "at most 16"},
	{chatPath, `{` + story + `, "logprobs": 3}`, 400, "logprobs", "true or false"},
	{chatPath, `{` + story + `, "top_logprobs": 5}`, 400, "top_logprobs", `alternatives need log-probabilities: set logprobs to true`},
	{chatPath, `{` + story + `, "logprobs": true, "top_logprobs": 500}`, 400, "top_logprobs", `500, want a number from 0 to 20`},
	{chatPath, `{` + story + `, "logit_bias": [1]}`, 400, "logit_bias", `want an object of token ids with numbers, as {"42": -100}`},
	{chatPath, `{` + story + `, "logit_bias": {"cat": 5}}`, 400, "logit_bias", `the name "cat" is not a token id`},
	{chatPath, `{` + story + `, "logit_bias": {"4": 101}}`, 400, "logit_bias", "from -100 to 100"},
	{chatPath, `{` + story + `, "logit_bias": {"99999999": 5}}`, 400, "logit_bias", `99999999 is not a token of the model; its ids are 0 to 8195`},
	{chatPath, `{` + story + `, "stream_options": {"include_usage": true}}`, 400, "stream_options", `this needs stream set to true`},
	{chatPath, `{` + story + `, "stream": "yes"}`, 400, "stream", `the string "yes", want true or false`},
	{chatPath, `{` + story + `, "mtp_depth": 99}`, 400, "mtp_depth", `99, want 0 to 8, or "auto"`},
	{chatPath, `{` + story + `, "functions": [{"name": "f"}]}`, 400, "functions", `functions are not supported: use tools, which replaced them`},
	{chatPath, `{` + story + `, "modalities": ["text", "audio"]}`, 400, "modalities[1]", "want one of"},
	{chatPath, `{` + story + `, "reasoning_effort": "very"}`, 400, "reasoning_effort", `"very", want one of ["none" "minimal" "low" "medium" "high" "xhigh" "max"]`},
	{chatPath, `{` + story + `, "chat_template_kwargs": 5}`, 400, "chat_template_kwargs", "an object with variables"},
	{chatPath, `{` + story + `, "chat_template_kwargs": {"messages": []}}`, 400, "chat_template_kwargs.messages", "reserved"},
	{chatPath, `{` + story + `, "max_thinking_tokens": 0}`, 400, "max_thinking_tokens", "from 1"},
	{chatPath, `{` + story + `, "response_format": {"type": "yaml"}}`, 400, "response_format.type", `"yaml", want one of ["text" "json_object" "json_schema"]`},
	{chatPath, `{` + story + `, "response_format": {}}`, 400, "response_format.type", "missing"},
	{chatPath, `{` + story + `, "response_format": {"type": "json_schema"}}`, 400, "response_format.json_schema", `this field is missing`},
	{chatPath, `{` + story + `, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}`, 400, "response_format.json_schema.schema", "missing"},
	{chatPath, `{` + story + `, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}}`, 400, "response_format", "thing"},
	{chatPath, `{` + story + `, "response_format": {"type": "json_object"}, "guided_regex": "a"}`, 400, "guided_regex", "two formats"},
	{chatPath, `{` + story + `, "guided_regex": "("}`, 400, "guided_regex", "structured output"},
	{textPath, `{"prompt": "a", "guided_json": {"type": "nonsense"}}`, 400, "guided_json", "structured output"},
	{responsesPath, `{"input": "a", "guided_regex": "("}`, 400, "guided_regex", "structured output"},
	{chatPath, `{` + story + `, "guided_choice": []}`, 400, "guided_choice", "at least one"},
	{chatPath, `{` + story + `, "tools": 5}`, 400, "tools", `5, want an array`},
	{chatPath, `{` + story + `, "tools": [{"type": "function"}]}`, 400, "tools[0].function", `this field is missing`},
	{chatPath, `{` + story + `, "tools": [{"type": "function", "function": {"name": ""}}]}`, 400, "tools[0].function.name", "empty"},
	{chatPath, `{` + story + `, "tools": [{"type": "function", "function": {"name": "f", "parameters": 7}}]}`, 400, "tools[0].function.parameters", `want a JSON schema, which is an object`},
	{chatPath, `{` + story + `, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]}`, 400, "tools[1]", "two tools"},
	{chatPath, `{` + story + `, "tool_choice": "required"}`, 400, "tool_choice", `there are no tools`},
	{chatPath, `{` + story + `, "tool_choice": "always", ` + weather + `}`, 400, "tool_choice", "want one of"},
	{chatPath, `{` + story + `, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}}`, 400, "tool_choice", `there is no tool "g"`},
	{chatPath, `{` + story + `, "tool_choice": {"type": "function"}, ` + weather + `}`, 400, "tool_choice.function", "missing"},
	{chatPath, `{` + story + `, "tool_choice": {"type": "custom"}, ` + weather + `}`, 400, "tool_choice.custom", "missing"},
	{chatPath, `{` + story + `, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "x"}}]}}, ` + weather + `}`, 400, "tool_choice.allowed_tools.tools[0]", "no tool"},
	{chatPath, `{` + story + `, "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "thing"}}}]}`, 400, "tools", "thing"},
	{chatPath, `{` + story + `, "response_format": {"type": "json_object"}, ` + weather + `}`, 400, "response_format", "cannot be combined with tools"},
	{chatPath, `{"messages": [{"role": "user", "content": "` + strings.Repeat("many words ", 2000) + `"}]}`, 400, "messages", "shorten the prompt"},
	{chatPath, `{"messages": null}`, 400, "messages", `this field is missing`},
	{chatPath, `{` + story + `, "max_tokens": 4, "min_p": 2}`, 400, "min_p", `2, want a number from 0 to 1`},
	{chatPath, `{` + story + `, "max_tokens": 4, "max_completion_tokens": 7}`, 400, "max_tokens", `4, but another field sets the same limit to 7: leave one of them out`},
	{chatPath, `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": -5}`, 400, "max_tokens", `-5, want a number from 1 to 2147483647`},
	{chatPath, `{` + story + `, "max_tokens": 4, "presence_penalty": 1000}`, 400, "presence_penalty", `1000, want a number from -100 to 100`},
	{chatPath, `{` + story + `, "max_tokens": 4, "xtc_threshold": 0.9}`, 400, "xtc_threshold", `0.9, want a number from 0 to 0.5`},
	{chatPath, `{` + story + `, "max_tokens": 4, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}}`, 400, "response_format", `structured output: grammar: schema: #/type: "nonsense" is not a type of JSON`},
	{chatPath, `{` + story + `, "max_tokens": 4, "modalities": ["audio"]}`, 400, "modalities[0]", `"audio", want one of ["text"]`},
	{chatPath, `{` + story + `, "max_tokens": 4, "tools": [{"type": "function", "function": {"name": 5}}]}`, 400, "tools[0].function.name", `5, want a string`},
	{chatPath, `{` + story + `, "max_tokens": 4, "tool_choice": "perhaps"}`, 400, "tool_choice", `there are no tools`},

	{textPath, `{}`, 400, "prompt", `this field is missing`},
	{textPath, `{"prompt": ""}`, 400, "prompt", `the prompt is empty`},
	{textPath, `{"prompt": []}`, 400, "prompt", "want a string"},
	{textPath, `{"prompt": 5}`, 400, "prompt", `5, want an array`},
	{textPath, `{"prompt": [-1]}`, 400, "prompt[0]", `-1, want a number from 0 to 2147483647`},
	{textPath, `{"prompt": [99999999]}`, 400, "prompt", `99999999 is not a token of the model; its ids are 0 to 8255`},
	{textPath, `{"prompt": ["a", 5]}`, 400, "prompt[1]", `5, want an array`},
	{textPath, `{"prompt": "a", "best_of": 5}`, 400, "best_of", `choosing the best 1 of 5 answers is not supported: get all of them with n`},
	{textPath, `{"prompt": "a", "suffix": "end"}`, 400, "suffix", `a suffix is not supported: texts are continued at their end only`},
	{textPath, `{"prompt": "a", "echo": true, "logprobs": 1}`, 400, "echo", "not supported"},
	{textPath, `{"prompt": [` + strings.Repeat(`"a",`, 128) + `"a"]}`, 400, "prompt", "at most 128"},
	{textPath, `{"prompt": "` + strings.Repeat("many words ", 2000) + `"}`, 400, "prompt", "shorten the prompt"},
	{textPath, `{"prompt": "a", "logprobs": -1}`, 400, "logprobs", `-1, want a number from 0 to 20`},
	{textPath, `{"prompt": "a", "echo": 5}`, 400, "echo", `5, want true or false`},

	{responsesPath, `{}`, 400, "input", `this field is missing`},
	{responsesPath, `{"input": []}`, 400, "input", "at least one"},
	{responsesPath, `{"input": [{"type": "reasoning", "summary": []}]}`, 400, "input", "no message to answer"},
	{responsesPath, `{"input": [5]}`, 400, "input[0]", "an object with a type"},
	{responsesPath, `{"input": [{"type": "item_reference", "id": "x"}]}`, 404, "input[0].id", "no stored item"},
	{responsesPath, `{"input": [{"type": "item_reference"}]}`, 400, "input[0].id", "missing"},
	{responsesPath, `{"input": [{"role": "user", "content": [{"type": "input_image"}]}]}`, 400, "input[0].content[0].image_url", "missing"},
	{responsesPath, `{"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}]}`, 400, "input[0].arguments", "want a JSON object"},
	{responsesPath, `{"input": "Hi.", "previous_response_id": "resp_none"}`, 404, "previous_response_id", `there is no stored response "resp_none": it was not stored, was deleted, or was evicted`},
	{responsesPath, `{"input": "Hi.", "background": true}`, 400, "background", `background responses are not supported: stream the response`},
	{responsesPath, `{"input": "a", "conversation": "x"}`, 400, "conversation", "previous_response_id"},
	{responsesPath, `{"input": "a", "text": {"format": {"type": "json_schema"}}}`, 400, "text.format.schema", "missing"},
	{responsesPath, `{"input": "a", "text": {"format": {"type": "json_schema", "schema": {"type": "thing"}}}}`, 400, "text.format", "thing"},
	{responsesPath, `{"input": "Hi.", "max_output_tokens": 0}`, 400, "max_output_tokens", `0, want a number from 1 to 2147483647`},
	{responsesPath, `{"input": "` + strings.Repeat("many words ", 2000) + `"}`, 400, "input", "shorten the prompt"},
	{responsesPath, `{"input": [{"type": "dance"}]}`, 400, "input[0].type", `items of type "dance" are not supported: want message, reasoning, function_call or function_call_output`},

	{"/v1/embeddings", `{"input": "x"}`, 400, "", `embeddings are not supported: the models generate text and are not trained for embeddings`},
}

func TestBadRequestsAreToldWhy(t *testing.T) {
	for _, c := range refusals {
		status, text := send(t, http.MethodPost, c.path, c.request)
		var got errorBody
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%.200s: %v: %s", c.request, err, text)
		}
		param := ""
		if got.Error.Param != nil {
			param = *got.Error.Param
		}
		if status != c.status || param != c.param || !strings.Contains(got.Error.Message, c.says) || got.Error.Type != "invalid_request_error" {
			t.Errorf("%s %.200s: status %d, want %d about %q that says %q: %s", c.path, c.request, status, c.status, c.param, c.says, text)
		}
	}
}

func TestWriteErrorSaysWhatClientsActOn(t *testing.T) {
	for _, c := range []struct {
		err          generate.Error
		kind, header string
	}{
		{generate.Error{Status: 401, Kind: generate.Unauthorized, Message: "m"}, `"type":"invalid_request_error","param":null,"code":"invalid_api_key"`, ""},
		{generate.Error{Status: 404, Kind: generate.NotFound, Param: "model", Message: "m"}, `"type":"invalid_request_error","param":"model","code":"model_not_found"`, ""},
		{generate.Error{Status: 400, Kind: generate.TooLarge, Message: "m"}, `"type":"invalid_request_error","param":null,"code":"context_length_exceeded"`, ""},
		{generate.Error{Status: 413, Kind: generate.TooLarge, Message: "m"}, `"type":"invalid_request_error","param":null,"code":"request_too_large"`, ""},
		{generate.Error{Status: 429, Kind: generate.Busy, Message: "m", RetryAfter: 1500e6}, `"type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"`, "2"},
		{generate.Error{Status: 503, Kind: generate.Unavailable, Message: "m"}, `"type":"server_error","param":null,"code":"unavailable"`, ""},
		{generate.Error{Status: 500, Kind: generate.Internal, Message: "m"}, `"type":"server_error","param":null,"code":"internal_error"`, ""},
	} {
		w := httptest.NewRecorder()
		WriteError(w, &c.err)
		if w.Code != c.err.Status || !strings.Contains(w.Body.String(), c.kind) || w.Header().Get("Retry-After") != c.header {
			t.Errorf("%s: status %d, %v: %s", c.err.Kind, w.Code, w.Header(), w.Body)
		}
	}
}

func TestBodyOverTheLimitIs413(t *testing.T) {
	mux := http.NewServeMux()
	Register(body.On(mux, nil), service)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{`+story+`}`))
	r.Body = http.MaxBytesReader(w, r.Body, 20)
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "larger than 20 bytes") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestHarmlessFieldsAreAccepted(t *testing.T) {
	for path, request := range map[string]string{
		chatPath: `{` + story + `, "max_tokens": 1, "user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto", "safety_identifier": "s",
			"prompt_cache_key": "k", "prompt_cache_retention": "24h", "prediction": {"type": "content", "content": "x"}, "modalities": ["text"], "verbosity": "medium",
			"tool_choice": "auto", "tools": [], "parallel_tool_calls": true, "temperature": null, "stop": null, "logit_bias": null, "response_format": null, "seed": -1, "top_k": -1}`,
		textPath: `{"prompt": "a", "max_tokens": 1, "user": "u", "suffix": null, "best_of": 1, "echo": false, "logprobs": null}`,
		responsesPath: `{"input": "a", "max_output_tokens": 1, "background": false, "truncation": "disabled", "include": ["reasoning.encrypted_content"], "max_tool_calls": 3,
			"text": {"verbosity": "medium"}, "reasoning": {"effort": null, "summary": null}, "tools": [], "tool_choice": "auto", "prompt_cache_key": "k"}`,
	} {
		if status, text := send(t, http.MethodPost, path, request); status != http.StatusOK {
			t.Errorf("%s: status %d: %s", path, status, text)
		}
	}
}

func TestQuirksOfClientsAreUnderstood(t *testing.T) {
	prompt := func(messages string) int {
		t.Helper()
		return ask[chatObject](t, chatPath, `{"max_tokens": 1, "messages": [`+messages+`]}`).Usage.Prompt
	}
	plain := prompt(`{"role": "system", "content": "Be kind.\n\nBe brief."}, {"role": "user", "content": "Hello there."}`)
	for name, messages := range map[string]string{
		"developer":    `{"role": "developer", "content": "Be kind.\n\nBe brief."}, {"role": "user", "content": "Hello there."}`,
		"several":      `{"role": "system", "content": "Be kind."}, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there."}`,
		"late":         `{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello there."}, {"role": "developer", "content": "Be brief."}`,
		"parts":        `{"role": "system", "content": [{"type": "text", "text": "Be kind.\n\nBe brief."}]}, {"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there.", "cache_control": {}}]}`,
		"fields":       `{"role": "system", "content": "Be kind.\n\nBe brief.", "name": null}, {"role": "user", "content": "Hello there.", "refusal": null, "id": "x"}`,
		"empty system": `{"role": "system", "content": "Be kind.\n\nBe brief."}, {"role": "user", "content": "Hello there."}, {"role": "system", "content": ""}`,
	} {
		if n := prompt(messages); n != plain {
			t.Errorf("%s: %d tokens, want %d", name, n, plain)
		}
	}
	silent := prompt(`{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "y"}`)
	for _, said := range []string{`"content": null`, `"refusal": null`, `"content": null, "tool_calls": []`} {
		if n := prompt(`{"role": "user", "content": "x"}, {"role": "assistant", ` + said + `}, {"role": "user", "content": "y"}`); n != silent {
			t.Errorf("%s: %d tokens, want %d", said, n, silent)
		}
	}
	history := func(call string) int {
		t.Helper()
		return ask[chatObject](t, chatPath, `{"model": "thinker", "max_tokens": 1, `+weather+`, "messages": [{"role": "user", "content": "Hi."}, `+call+`,
			{"role": "tool", "tool_call_id": "1", "content": "sun"}]}`).Usage.Prompt
	}
	called := history(`{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{\"a\": 1}"}}]}`)
	for name, call := range map[string]string{
		"null content": `{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{\"a\": 1}"}}]}`,
		"no content":   `{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{\"a\":1}"}}], "refusal": null, "annotations": []}`,
		"object":       `{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": {"a": 1}}}]}`,
	} {
		if n := history(call); n != called {
			t.Errorf("%s: %d tokens, want %d", name, n, called)
		}
	}
	thought := history(`{"role": "assistant", "content": "So.", "reasoning_content": "I think."}`)
	if n := history(`{"role": "assistant", "content": "So.", "reasoning": "I think."}`); n != thought || n == history(`{"role": "assistant", "content": "So."}`) {
		t.Errorf("%d tokens with thinking under another name, want %d", n, thought)
	}
}

// FuzzRequests checks that the decoders return a client error for anything that is not a request.
func FuzzRequests(f *testing.F) {
	for _, c := range refusals {
		if len(c.request) < 1000 {
			f.Add(c.request)
		}
	}
	f.Add(`{"messages": [{"role": "user", "content": "a"}], ` + weather + `, "tool_choice": {"type": "function", "function": {"name": "clock"}}, "logit_bias": {"1": 2}}`)
	f.Add(`{"input": [{"type": "reasoning", "content": []}, {"role": "assistant", "content": "x"}], ` + flatWeather + `}`)
	s := &API{service: service, stored: newStore()}
	s.stored.put("", &stored{id: "resp_1", messages: []chat.Message{{Role: "user"}}})
	f.Fuzz(func(t *testing.T, request string) {
		check := func(err error) {
			if err == nil {
				return
			}
			if e := generate.Wrap(err); e.Kind == generate.Internal || e.Status < 400 || e.Status > 499 || e.Message == "" {
				t.Errorf("%q: %+v", request, e)
			}
			newErrorObject(generate.Wrap(err))
		}
		talk, err := readChat(generate.Caller{}, body.Parse([]byte(request)))
		if check(err); err == nil && len(talk.Messages) == 0 {
			t.Errorf("%q has no messages", request)
		}
		text, err := readText(generate.Caller{}, body.Parse([]byte(request)))
		if check(err); err == nil && len(text.requests) == 0 {
			t.Errorf("%q has no prompt", request)
		}
		response, err := s.readResponse(generate.Caller{}, body.Parse([]byte(request)))
		if check(err); err == nil && len(response.Messages) == 0 {
			t.Errorf("%q has no messages", request)
		}
	})
}

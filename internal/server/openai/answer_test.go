package openai

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// changing is the difference between two answers to the same request: identifiers, and fields that depend on time
// and on the cache.
var changing = regexp.MustCompile(`"(id|call_id)":"[^"]*"|"(created|created_at|cached_tokens|accepted_prediction_tokens|rejected_prediction_tokens)":\d+`)

// Answer gives the same status and bytes as the endpoint, for answers and errors.
func TestAnswerIsThatOfTheEndpoint(t *testing.T) {
	api := New(service)
	for _, c := range []struct{ path, request string }{
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 8, "seed": 3, "n": 2}`},
		{"/v1/completions", `{"prompt": ["Once", "Twice"], "max_tokens": 8, "seed": 3, "logprobs": 1}`},
		{"/v1/responses", `{"input": "Hi.", "max_output_tokens": 8, "seed": 3}`},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi."}], "response_format": {"type": "x"}}`},
		{"/v1/chat/completions", `{"model": "none", "messages": [{"role": "user", "content": "Hi."}]}`},
		{"/v1/completions", `{"prompt": ""}`},
		{"/v1/responses", `{"input": "Hi.", "max_output_tokens": -1}`},
		{"/v1/responses", `[]`},
	} {
		status, text := send(t, http.MethodPost, c.path, c.request)
		got, response := api.Answer(t.Context(), generate.Caller{}, c.path, []byte(c.request))
		if want := changing.ReplaceAllString(text, "$1"); got != status || changing.ReplaceAllString(string(response), "$1") != want {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.request, got, response, status, text)
		}
	}
}

// Answer refuses unsupported requests, and reports them.
func TestAnswerRefuses(t *testing.T) {
	for _, c := range []struct {
		path, request, want string
		strict              bool
		status              int
	}{
		{"/v1/models", `{}`, "does not generate", false, http.StatusNotFound},
		{"/v1/completions", `{"prompt": "a", "stream": true}`, "cannot be streamed", false, http.StatusBadRequest},
		{"/v1/completions", `{"prompt": "a", "mood": 1}`, "mood: this field is not supported", true, http.StatusBadRequest},
	} {
		var reported error
		caller := generate.Caller{Strict: c.strict, Reporter: func(_ *generate.Run, err error) { reported = err }}
		status, response := New(service).Answer(t.Context(), caller, c.path, []byte(c.request))
		if status != c.status || !strings.Contains(string(response), c.want) || reported == nil || !strings.Contains(reported.Error(), c.want) {
			t.Errorf("%s %s: %d %s, reported %v; want %d %s", c.path, c.request, status, response, reported, c.status, c.want)
		}
	}
}

// The response of a deterministic caller is a function of the request: the second has the bytes of the
// first, although its prompt is cached. Its identifiers differ from each other and depend on the key.
func TestAnswersAreDeterministic(t *testing.T) {
	const tools = `"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "additionalProperties": false}}}], "tool_choice": "required"`
	const named = `"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "additionalProperties": false}}], "tool_choice": "required"`
	ids := regexp.MustCompile(`"(?:id|call_id)":"([^"]*)"`)
	api := New(service)
	for _, c := range []struct {
		path, request string
		ids           int // at least
	}{
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 60, "seed": 3, "n": 2, ` + tools + `}`, 3},
		{"/v1/completions", `{"prompt": ["Once", "Twice"], "max_tokens": 8, "seed": 3}`, 1},
		{"/v1/responses", `{"input": "Hi.", "max_output_tokens": 60, "seed": 3, ` + named + `}`, 3},
	} {
		answer := func(key string) string {
			caller := generate.Caller{Deterministic: &generate.Deterministic{Key: key, Created: time.Unix(7, 0)}}
			status, response := api.Answer(t.Context(), caller, c.path, []byte(c.request))
			if status != http.StatusOK || !regexp.MustCompile(`"created(_at)?":7\b`).Match(response) || strings.Contains(string(response), "cached_tokens") {
				t.Errorf("%s: %d %s", c.path, status, response)
			}
			return string(response)
		}
		first, again, other := answer("a"), answer("a"), answer("b")
		if first != again {
			t.Errorf("%s: %s, then %s", c.path, first, again)
		}
		seen := map[string]bool{}
		for _, m := range append(ids.FindAllStringSubmatch(first, -1), ids.FindAllStringSubmatch(other, -1)...) {
			seen[m[1]] = true
		}
		if len(seen) < 2*c.ids || len(seen) != 2*len(ids.FindAllString(first, -1)) {
			t.Errorf("%s: %d identifiers in %s and %s", c.path, len(seen), first, other)
		}
		if found, _, _ := api.stored.Len(); found > 0 {
			t.Errorf("%s: %d responses are stored", c.path, found)
		}
	}
}

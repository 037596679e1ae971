package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/server/body"
)

// tolerated is a request of which something is ignored, by the name in the header. A strict
// server refuses it and says why.
type tolerated struct {
	path, request string
	ignored       string
	param, says   string
}

var toleratedRequests = []tolerated{
	{chatPath, `{` + story + `, "max_tokens": 1, "colour": "red"}`, "colour", "colour", "not known"},
	{chatPath, `{` + story + `, "max_tokens": 1, "foretoken": {"receit": true}}`, "foretoken.receit", "foretoken.receit", "not known"},
	{chatPath, `{` + story + `, "max_tokens": 1, "verbosity": "low"}`, "verbosity=low", "verbosity", "say medium"},
	{chatPath, `{` + story + `, "max_tokens": 1, "audio": {"voice": "x"}}`, "audio", "audio", "not known"},
	{chatPath, `{` + story + `, "max_tokens": 1, "tools": [{"type": "web_search", "size": 3}]}`, "tools[].type=web_search", "tools[0].type", "only functions"},
	{chatPath, `{` + story + `, "max_tokens": 1, "tool_choice": "required", "tools": [{"type": "web_search"}]}`, "tools[].type=web_search, tool_choice=required", "tools[0].type", "only functions"},
	{chatPath, `{` + story + `, "max_tokens": 1, "tool_choice": {"type": "web_search"}, ` + weather + `}`, "tool_choice.type=web_search", "tool_choice.type", "only functions"},
	{chatPath, `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "mood": 1}, {"type": "text", "text": "b", "mood": 2}]}], "max_tokens": 1}`, "messages[].content[].mood", "messages[0].content[0].mood", "not known"},
	{chatPath, `{` + story + `, "max_tokens": 1, "tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: start"}}}}]}`, "tools[].custom.format.grammar.syntax=lark", "tools[0].custom.format.grammar.syntax", "begins with itself"},
	{textPath, `{"prompt": "a", "max_tokens": 1, "messages": []}`, "messages", "messages", "not known"},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "truncation": "auto"}`, "truncation=auto", "truncation", "shorten it"},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "text": {"verbosity": "high", "tone": 1}}`, "text.tone, text.verbosity=high", "text.verbosity", "say medium"},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "reasoning": {"summary": "detailed"}}`, "reasoning.summary=detailed", "reasoning.summary", "say auto"},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "include": ["file_search_call.results", "reasoning.encrypted_content"]}`, "include[]=file_search_call.results", "include[0]", "no such thing"},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "tools": [{"type": "file_search", "vector_store_ids": ["x"]}, {"type": "image_generation"}, {"type": "mcp", "server_label": "x"}]}`, "tools[].type=file_search, tools[].type=image_generation, tools[].type=mcp", "tools[0].type", "only functions"},
	{responsesPath, `{"input": "a", "max_output_tokens": 1, "n": 2}`, "n", "n", "not known"},
	{responsesPath, `{"input": [{"type": "web_search_call", "id": "ws_1", "action": {}}, {"role": "user", "content": "a", "mood": 1}], "max_output_tokens": 1}`, "input[].mood, input[].type=web_search_call", "input[0].type", "not run here"},
}

// post makes a request and returns the status, the header that names what was ignored, and
// the body.
func post(t *testing.T, url, text string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get(body.Ignored), string(data)
}

// strictSite is a server that refuses what others ignore.
func strictSite(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	Register(mux, host)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(body.WithStrict(r.Context())))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	strict := strictSite(t)
	for _, c := range toleratedRequests {
		for _, text := range []string{c.request, streamed(c.request)} {
			if status, ignored, answer := post(t, site.URL+c.path, text); status != http.StatusOK || ignored != c.ignored {
				t.Errorf("%s %s: status %d, ignored %q, want %q: %.200s", c.path, text, status, ignored, c.ignored, answer)
			}
		}
		status, ignored, answer := post(t, strict.URL+c.path, c.request)
		var got errorBody
		if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Error.Param == nil {
			t.Fatalf("%s: %v: %s", c.request, err, answer)
		}
		if status != http.StatusBadRequest || ignored != "" || *got.Error.Param != c.param || !strings.Contains(got.Error.Message, c.says) {
			t.Errorf("%s %s, strictly: status %d, ignored %q, want 400 about %q that says %q: %s", c.path, c.request, status, ignored, c.param, c.says, answer)
		}
	}
}

// What is wrong is wrong however strict the server is.
func TestStrictServersRefuseTheSame(t *testing.T) {
	strict := strictSite(t)
	for _, c := range refusals {
		if status, _, answer := post(t, strict.URL+c.path, c.request); status != c.status || !strings.Contains(answer, `"error"`) {
			t.Errorf("%s %.200s: status %d, want %d: %s", c.path, c.request, status, c.status, answer)
		}
	}
}

func TestNothingIgnoredNoHeader(t *testing.T) {
	for path, text := range map[string]string{chatPath: `{` + story + `, "max_tokens": 1}`, responsesPath: `{"input": "a", "max_output_tokens": 1, "client_metadata": {"x": "y"}}`} {
		if status, ignored, answer := post(t, site.URL+path, text); status != http.StatusOK || ignored != "" {
			t.Errorf("%s: %d, ignored %q: %s", path, status, ignored, answer)
		}
	}
}

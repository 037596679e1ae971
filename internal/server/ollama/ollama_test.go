package ollama

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

var (
	service *generate.Service
	site    *httptest.Server
)

func TestMain(m *testing.M) { generatetest.Main(m, Register, &service, &site) }

// send makes a request and returns the status and the body.
func send(t *testing.T, method, path, request string) (int, string) {
	t.Helper()
	return generatetest.Send(t, method, site.URL+path, request)
}

// line is a response as a client reads it.
type line struct {
	response
	final
	Foretoken *generate.Extra `json:"foretoken"`
}

// ask sends a request that must succeed and returns the lines of the answer.
func ask(t *testing.T, path, request string) []line {
	t.Helper()
	status, text := send(t, http.MethodPost, path, request)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", request, status, text)
	}
	var list []line
	for part := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(part), &l); err != nil {
			t.Fatalf("%s: %v: %s", request, err, part)
		}
		list = append(list, l)
	}
	for i, l := range list {
		if l.Done != (i == len(list)-1) || l.CreatedAt.IsZero() || l.Model == "" {
			t.Errorf("%s: line %d of %d: %+v", request, i+1, len(list), l)
		}
	}
	return list
}

// once is a request for an answer in one piece.
func once(request string) string { return strings.Replace(request, "{", `{"stream": false, `, 1) }

// all is the joined content of some lines.
type all struct {
	Content, Thinking string
	Calls             []function
	Reason            string
	Count             int
}

func sum(list []line) all {
	var a all
	for _, l := range list {
		if l.Message != nil {
			a.Content += l.Message.Content
			a.Thinking += l.Message.Thinking
			for _, c := range l.Message.ToolCalls {
				a.Calls = append(a.Calls, c.Function)
			}
		} else {
			a.Content += *l.Response
			a.Thinking += l.Thinking
		}
		if l.Done {
			a.Reason, a.Count = l.Reason, l.Count
		}
	}
	return a
}

const weather = `"tools": [{"type": "function", "function": {"name": "weather", "description": "Weather of a place", "parameters": {"type": "object",
	"properties": {"place": {"type": "string"}}, "required": ["place"]}}}]`

// requests are one of each kind of answer.
var requests = map[string][2]string{
	"chat":     {"/api/chat", `{"model": "tiny", "options": {"seed": 7, "num_predict": 30}, "messages": [{"role": "user", "content": "Tell me a story about a cat."}]}`},
	"system":   {"/api/chat", `{"model": "tiny", "options": {"temperature": 0, "num_predict": 5}, "messages": [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "A cat."}]}`},
	"stop":     {"/api/chat", `{"model": "tiny", "options": {"seed": 1, "num_predict": 80, "stop": ["the"]}, "messages": [{"role": "user", "content": "Tell me a story about a cat."}]}`},
	"options":  {"/api/chat", `{"model": "tiny", "options": {"seed": 1, "num_predict": 8, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": 32, "mtp_depth": "auto", "presence_penalty": 0.1, "frequency_penalty": 0.1, "num_ctx": 1024, "mirostat": 0, "num_gpu": 1, "num_thread": 2}, "keep_alive": "5m", "messages": [{"role": "user", "content": "A cat."}]}`},
	"thinking": {"/api/chat", `{"model": "thinker", "think": true, "options": {"seed": 3, "num_predict": 12}, "messages": [{"role": "user", "content": "A cat?"}]}`},
	"effort":   {"/api/chat", `{"model": "thinker", "think": "low", "options": {"seed": 4, "num_predict": 12}, "messages": [{"role": "user", "content": "A cat?"}]}`},
	"quiet":    {"/api/chat", `{"model": "thinker", "think": false, "options": {"seed": 3, "num_predict": 12}, "messages": [{"role": "user", "content": "A cat?"}]}`},
	"tools":    {"/api/chat", `{"model": "thinker", "think": false, "options": {"seed": 3, "num_predict": 12}, ` + weather + `, "messages": [{"role": "user", "content": "Weather?"}]}`},
	"prefill":  {"/api/chat", `{"model": "tiny", "options": {"temperature": 0, "num_predict": 8}, "messages": [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": "Once upon a"}]}`},
	"json":     {"/api/chat", `{"model": "tiny", "format": "json", "options": {"seed": 3, "num_predict": 40}, "messages": [{"role": "user", "content": "Hi"}]}`},
	"schema":   {"/api/chat", `{"model": "tiny", "format": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}, "options": {"seed": 3, "num_predict": 40}, "messages": [{"role": "user", "content": "Hi"}]}`},
	"generate": {"/api/generate", `{"model": "tiny", "system": "You tell stories.", "options": {"seed": 7, "num_predict": 20}, "prompt": "Tell me a story about a cat."}`},
	"raw":      {"/api/generate", `{"model": "tiny", "raw": true, "options": {"temperature": 0, "num_predict": 8}, "prompt": "Once upon a"}`},
	"thought":  {"/api/generate", `{"model": "thinker", "options": {"seed": 9, "num_predict": 12}, "prompt": "A cat?"}`},
}

func TestLinesEqualTheWhole(t *testing.T) {
	for name, r := range requests {
		t.Run("request="+name, func(t *testing.T) {
			lines, whole := sum(ask(t, r[0], r[1])), sum(ask(t, r[0], once(r[1])))
			if a, b := fmt.Sprintf("%+v", lines), fmt.Sprintf("%+v", whole); a != b {
				t.Errorf("the lines are\n%s\nand the whole\n%s", a, b)
			}
		})
	}
}

func TestAnswersAreWhatWasAskedFor(t *testing.T) {
	get := func(name string) all { return sum(ask(t, requests[name][0], once(requests[name][1]))) }
	if a := get("chat"); a.Count != 30 || a.Reason != "length" || a.Content == "" {
		t.Errorf("chat: %+v", a)
	}
	if a := get("stop"); a.Reason != "stop" || strings.Contains(a.Content, "the") {
		t.Errorf("stop: %+v", a)
	}
	if a := get("thinking"); a.Thinking == "" {
		t.Errorf("thinking: %+v", a)
	}
	if a := get("thought"); a.Thinking == "" {
		t.Errorf("thought: %+v", a)
	}
	if a := get("quiet"); a.Thinking != "" || a.Content == "" {
		t.Errorf("quiet: %+v", a)
	}
	if a := get("raw"); !strings.HasPrefix(a.Content, " time") {
		t.Errorf("raw: %+v", a)
	}
	if a := get("prefill"); !strings.HasPrefix(a.Content, " time") {
		t.Errorf("prefill: %+v", a)
	}
	var v map[string]bool
	if a := get("schema"); json.Unmarshal([]byte(a.Content), &v) != nil || len(v) != 1 {
		t.Errorf("schema: %+v", a)
	}
	if a := get("json"); !strings.HasPrefix(a.Content, "{") {
		t.Errorf("json: %+v", a)
	}
}

func TestLastLineHasTheFigures(t *testing.T) {
	list := ask(t, requests["chat"][0], strings.Replace(requests["chat"][1], "{", `{"foretoken": {"stats": true, "trace": true}, `, 1))
	last := list[len(list)-1]
	if last.PromptCount < 10 || last.Count != 30 || last.Total <= 0 || last.Time <= 0 || last.PromptTime <= 0 || last.Total < last.Time {
		t.Errorf("%+v", last)
	}
	if last.Foretoken == nil || last.Foretoken.Stats == nil || last.Foretoken.MTP == nil {
		t.Errorf("no stats: %+v", last.Foretoken)
	}
	tokens := 0
	for _, l := range list {
		if l.Foretoken != nil {
			tokens += len(l.Foretoken.Tokens)
		}
	}
	if tokens != 30 {
		t.Errorf("%d tokens in the trace", tokens)
	}
}

func TestToolCallsRoundTrip(t *testing.T) {
	// The tiny model does not call tools by itself: its answer is given.
	list := ask(t, "/api/chat", `{"model": "thinker", "stream": false, "think": false, "options": {"num_predict": 6}, `+weather+`, "messages": [
		{"role": "user", "content": "Weather in Rome?"},
		{"role": "assistant", "content": "", "thinking": "I look.", "tool_calls": [{"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"place": "Rome"}}}]},
		{"role": "tool", "tool_name": "weather", "tool_call_id": "call_1", "content": "sunny"}]}`)
	if a := sum(list); a.Count == 0 {
		t.Errorf("%+v", a)
	}
	// A call that must be made, constrained by a grammar.
	call := `{"model": "thinker", "think": false, ` + weather + `, "options": {"num_predict": 60, "seed": 1}, "messages": [{"role": "user", "content": "Weather in Rome?"}]}`
	q, err := (&handler{service: service}).decodeChat(body.Parse([]byte(call)))
	if err != nil {
		t.Fatal(err)
	}
	q.Calls = generate.CallRequired
	for _, q.stream = range []bool{false, true} {
		w := httptest.NewRecorder()
		answer, err := (&handler{service: service}).answer(w, httptest.NewRequest(http.MethodPost, "/api/chat", nil), generate.Caller{}, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !q.stream {
			body.JSON(w, http.StatusOK, answer)
		}
		var calls []json.RawMessage
		for part := range strings.Lines(w.Body.String()) {
			var l struct {
				Message struct {
					Calls []json.RawMessage `json:"tool_calls"`
				}
			}
			if err := json.Unmarshal([]byte(part), &l); err != nil {
				t.Fatalf("%v: %s", err, part)
			}
			calls = append(calls, l.Message.Calls...)
		}
		if len(calls) == 0 || !strings.Contains(string(calls[0]), `"function":{"index":0,"name":"weather","arguments":{"place":`) || !strings.Contains(string(calls[0]), `"id":"call_`) {
			t.Errorf("stream %v: %s", q.stream, w.Body)
		}
	}
}

func TestEmptyRequestsLoad(t *testing.T) {
	for path, request := range map[string]string{"/api/chat": `{"model": "tiny"}`, "/api/generate": `{"model": "tiny:latest", "keep_alive": -1}`} {
		list := ask(t, path, request)
		if len(list) != 1 || list[0].Reason != "load" {
			t.Errorf("%s: %+v", path, list)
		}
	}
}

func TestModelsAreListed(t *testing.T) {
	ask(t, "/api/generate", `{"model": "tiny"}`)
	for path, want := range map[string][]string{
		"/api/tags":    {`"name":"tiny"`, `"name":"thinker"`, `"name":"small"`, `"parameter_size":"19.0M"`, `"family":"qwen3_5"`, `"modified_at":"`, `"vision"`},
		"/api/ps":      {`"name":"tiny"`, `"context_length":1024`, `"size_vram":0`, `"expires_at":"9999`},
		"/api/version": {`{"version":"0.`},
	} {
		status, text := send(t, http.MethodGet, path, "")
		for _, w := range want {
			if status != http.StatusOK || !strings.Contains(text, w) {
				t.Errorf("%s: %d %s, want %s", path, status, text, w)
			}
		}
	}
	status, text := send(t, http.MethodPost, "/api/show", `{"name": "small"}`)
	for _, w := range []string{`"capabilities":["completion","vision"]`, `"qwen3_5.vision.block_count":4`, `"qwen3_5.context_length":1024`, `"general.architecture":"qwen3_5"`, `<|im_start|>`, `temperature 0.8\ntop_k 20`} {
		if status != http.StatusOK || !strings.Contains(text, w) {
			t.Errorf("show: %d %s, want %s", status, text, w)
		}
	}
	if _, text = send(t, http.MethodPost, "/api/show", `{"model": "thinker"}`); !strings.Contains(text, `["completion","tools","thinking","vision"]`) {
		t.Errorf("show thinker: %s", text)
	}
}

func TestBadRequestsAreNamed(t *testing.T) {
	const hi = `"messages": [{"role": "user", "content": "Hi"}]`
	strict := generatetest.Strict(t, Register, service)
	for _, c := range []struct {
		path, request string
		status        int
		want          string
	}{
		{"/api/chat", ``, 400, "the body is empty"},
		{"/api/chat", `{"model": "absent", ` + hi + `}`, 404, `model: unknown model "absent"; available: ["tiny" "thinker"]`},
		{"/api/chat", `{"model": 1, ` + hi + `}`, 400, "model: 1, want a string"},
		{"/api/chat", `{"messages": {}}`, 400, "messages: an object, want an array"},
		{"/api/chat", `{"messages": [{"content": "Hi"}]}`, 400, "messages[0].role: this field is missing"},
		{"/api/chat", `{"messages": [{"role": "bot", "content": "Hi"}]}`, 400, `messages[0].role: "bot", want one of`},
		{"/api/chat", `{"messages": [{"role": "user", "content": ["Hi"]}]}`, 400, "messages[0].content: an array, want a string"},
		{"/api/chat", `{"messages": [{"role": "user", "content": "Hi", "images": "aGk="}]}`, 400, "messages[0].images: want a list of images as base64 strings"},
		{"/api/chat", `{"messages": [{"role": "assistant", "tool_calls": [{}]}]}`, 400, "messages[0].tool_calls[0].function: this field is missing"},
		{"/api/chat", `{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{}"}}]}]}`, 400, "messages[0].tool_calls[0].function.arguments: want the arguments as an object"},
		{"/api/chat", `{"tools": [1], ` + hi + `}`, 400, "tools: chat: tools[0]"},
		{"/api/chat", `{"format": "xml", ` + hi + `}`, 400, `format: "xml", want one of ["json"]`},
		{"/api/chat", `{"think": "hard", ` + hi + `}`, 400, `think: "hard", want one of`},
		{"/api/chat", `{"think": 1, ` + hi + `}`, 400, "think: 1, want true or false"},
		{"/api/chat", `{"think": true, "messages": [{"role": "assistant", "content": "Hi"}]}`, 400, "think: an assistant message at the end is continued"},
		{"/api/chat", `{"stream": "no", ` + hi + `}`, 400, `stream: the string "no", want true or false`},
		{"/api/chat", `{"options": {"temperature": -1}, ` + hi + `}`, 400, "options.temperature: -1, want a number from 0"},
		{"/api/chat", `{"options": {"repeat_penalty": 0}, ` + hi + `}`, 400, "options.repeat_penalty: 0, want a number from 0.01"},
		{"/api/chat", `{"options": {"mtp_depth": 99}, ` + hi + `}`, 400, "options.mtp_depth: 99, want 0 to 8, or \"auto\""},
		{"/api/chat", `{"format": {"type": "wat"}, ` + hi + `}`, 400, "format: "},
		{"/api/generate", `{"prompt": "` + strings.Repeat("cat ", 2000) + `"}`, 400, "prompt: the prompt has "},
		{"/api/chat", `{"options": {"top_k": 1.5}, ` + hi + `}`, 400, "options.top_k: 1.5, want a whole number"},
		{"/api/chat", `{"options": {"num_ctx": 99999}, ` + hi + `}`, 400, "options.num_ctx: 99999, but the server runs the model with a context of 1024"},
		{"/api/chat", `{"options": {"stop": [""]}, ` + hi + `}`, 400, "options.stop[0]: the string is empty"},
		{"/api/chat", `{"keep_alive": 0}`, 400, "keep_alive: unloading a model by a request is not supported"},
		{"/api/generate", `{"prompt": 1}`, 400, "prompt: 1, want a string"},
		{"/api/generate", `{"prompt": "a", "suffix": "b"}`, 400, "suffix: filling in text before a suffix is not supported"},
		{"/api/generate", `{"prompt": "a", "template": "b"}`, 400, "template: templates in requests are not supported"},
		{"/api/generate", `{"prompt": "a", "context": [1]}`, 400, "context: conversations as token ids"},
		{"/api/generate", `{"prompt": "a", "images": ["b"]}`, 400, "images[0]: the data is not base64"},
		{"/api/generate", `{"prompt": "a", "raw": true, "system": "b"}`, 400, "system: this field cannot be combined with raw"},
		{"/api/show", `{}`, 400, "model: this field is missing"},
		{"/api/show", `{"model": "absent"}`, 404, "model: unknown model"},
		{"/api/embed", `{}`, 501, "not supported: the models generate text"},
		{"/api/pull", `{}`, 501, "not supported: models are fetched"},
	} {
		status, text := send(t, http.MethodPost, c.path, c.request)
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || status != c.status || !strings.HasPrefix(p.Error, c.want) {
			t.Errorf("%s %s\n got %d %s %v\nwant %d %q", c.path, c.request, status, text, err, c.status, c.want)
		}
		if status, _, text := generatetest.Post(t, strict+c.path, c.request); status != c.status {
			t.Errorf("%s %s, strictly: %d %s", c.path, c.request, status, text)
		}
	}
}

// endless is a request that is answered for minutes.
const endless = `{"model": "slow", "prompt": "Count.", "format": {"type": "array", "items": {"type": "integer"}, "minItems": 300}}`

func TestDisconnectFreesTheSequence(t *testing.T) {
	h, site, _ := generatetest.ServeSlow(t, Register)
	m, done, err := h.Library.Use(t.Context(), generatetest.Slow)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL+"/api/generate", strings.NewReader(endless))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	generatetest.AwaitCanceled(t, m, 0)
}

func TestErrorsInStreamsAreLines(t *testing.T) {
	_, site, end := generatetest.ServeSlow(t, Register)
	resp, err := http.Post(site.URL+"/api/generate", "application/json", strings.NewReader(endless))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	end() // the models leave while it is being answered
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "\n{\"error\":\"the server is shutting down\"}\n") {
		t.Errorf("the stream ended with %v, %q", err, rest)
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range requests {
		f.Add([]byte(r[1]))
	}
	h := &handler{service: service}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func(*body.Value) (*request, error){h.decodeChat, h.decodeGenerate} {
			q, err := decode(body.Parse(data))
			if err != nil {
				if e := generate.Wrap(err); e.Status != http.StatusBadRequest || e.Message == "" {
					t.Errorf("%q: %+v", data, e)
				}
			} else if !q.empty && len(q.Messages) == 0 && q.Text == "" && q.Prefill == "" {
				t.Errorf("%q asks for nothing and was taken", data)
			}
		}
	})
}

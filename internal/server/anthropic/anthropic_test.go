package anthropic

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

var (
	service *generate.Service
	site    *httptest.Server
)

func TestMain(m *testing.M) { generatetest.Main(m, Register, &service, &site) }

// post sends a request and returns the status and the body.
func post(t *testing.T, path, request string) (int, string) {
	t.Helper()
	return generatetest.Send(t, http.MethodPost, site.URL+path, request)
}

// ask sends a request that must succeed and returns its message.
func ask(t *testing.T, request string) *message {
	t.Helper()
	status, text := post(t, "/v1/messages", request)
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", request, status, err, text)
	}
	return &m
}

// heard is the result of reading a stream to its end.
type heard struct {
	message
	names  []string // of the events
	tokens []generate.Traced
}

// listen sends a request for a stream and puts the message together, as clients do.
func listen(t *testing.T, request string) *heard {
	t.Helper()
	status, text := post(t, "/v1/messages", strings.Replace(request, "{", `{"stream": true, `, 1))
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", request, status, text)
	}
	h := &heard{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	name, partial := "", ""
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = n
			h.names = append(h.names, n)
			continue
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if lines.Text() != "" {
				t.Fatalf("a line %q", lines.Text())
			}
			continue
		}
		var e struct {
			event
			Message *message `json:"message"`
			Delta   struct {
				delta
				ending
			} `json:"delta"`
			Usage *usage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != name {
			t.Fatalf("event %s: %v: %s", name, err, data)
		}
		if e.Foretoken != nil {
			h.tokens = append(h.tokens, e.Foretoken.Tokens...)
		}
		switch name {
		case "message_start":
			h.message = *e.Message
		case "content_block_start":
			if e.Index != len(h.Content) {
				t.Fatalf("block %d begins after %d", e.Index, len(h.Content))
			}
			h.Content, partial = append(h.Content, e.Block), ""
		case "content_block_delta":
			b := h.Content[e.Index]
			switch e.Delta.Type {
			case "text_delta":
				*b.Text += *e.Delta.Text
			case "thinking_delta":
				*b.Thinking += *e.Delta.Thinking
			case "signature_delta":
				*b.Signature += *e.Delta.Signature
			case "input_json_delta":
				partial += *e.Delta.Partial
			}
		case "content_block_stop":
			if partial != "" {
				h.Content[e.Index].Input = json.RawMessage(partial)
			}
		case "message_delta":
			h.StopReason, h.StopSequence, h.Usage = e.Delta.StopReason, e.Delta.StopSequence, *e.Usage
			h.Foretoken = e.Foretoken
		}
	}
	return h
}

// show is the part of a message that must not depend on the way of the request.
func show(t *testing.T, m *message) string {
	t.Helper()
	for _, b := range m.Content {
		b.ID = "" // each call has its own
	}
	data, err := json.MarshalIndent([]any{m.Content, m.StopReason, m.StopSequence, m.Usage.Output}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const weather = `"tools": [{"name": "weather", "description": "Weather of a place", "input_schema": {"type": "object",
	"properties": {"place": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 3}}, "required": ["place", "days"], "additionalProperties": false}}]`

// requests are one of each kind of answer.
var requests = map[string]string{
	"text":     `{"model": "tiny", "max_tokens": 40, "seed": 7, "messages": [{"role": "user", "content": "Tell me a story about a cat."}]}`,
	"greedy":   `{"model": "tiny", "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "max_tokens": 5, "temperature": 0, "system": "You tell stories.", "messages": [{"role": "user", "content": [{"type": "text", "text": "A cat.", "cache_control": {"type": "ephemeral"}}]}]}`,
	"stop":     `{"model": "tiny", "max_tokens": 80, "seed": 1, "stop_sequences": ["the", "zebra"], "messages": [{"role": "user", "content": "Tell me a story about a cat."}]}`,
	"prefill":  `{"model": "tiny", "max_tokens": 10, "temperature": 0, "messages": [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": "Once upon a"}]}`,
	"thinking": `{"model": "thinker", "max_tokens": 60, "seed": 3, "thinking": {"type": "enabled", "budget_tokens": 4}, "messages": [{"role": "user", "content": "A cat?"}]}`,
	"any":      `{"model": "thinker", "max_tokens": 100, "seed": 3, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, ` + weather + `, "messages": [{"role": "user", "content": "Weather in Rome?"}]}`,
	"tool":     `{"model": "thinker", "max_tokens": 100, "seed": 5, "tool_choice": {"type": "tool", "name": "weather"}, ` + weather + `, "messages": [{"role": "user", "content": "Weather in Rome?"}]}`,
	"schema":   `{"model": "tiny", "max_tokens": 60, "seed": 5, "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}}}, "messages": [{"role": "user", "content": "Yes?"}]}`,
}

func TestStreamEqualsMessage(t *testing.T) {
	for name, request := range requests {
		t.Run("request="+name, func(t *testing.T) {
			whole, stream := ask(t, request), listen(t, request)
			if a, b := show(t, whole), show(t, &stream.message); a != b {
				t.Errorf("the message is\n%s\nand the stream\n%s", a, b)
			}
			if stream.names[0] != "message_start" || stream.names[1] != "ping" || stream.names[len(stream.names)-1] != "message_stop" {
				t.Errorf("events %q", stream.names)
			}
		})
	}
}

func TestMessageHasTheShapeOfTheProtocol(t *testing.T) {
	m := ask(t, requests["greedy"])
	if !strings.HasPrefix(m.ID, "msg_") || m.Type != "message" || m.Role != "assistant" || m.Model != "tiny" {
		t.Errorf("%+v", m)
	}
	if len(m.Content) != 1 || m.Content[0].Type != "text" || *m.StopReason != "max_tokens" || m.StopSequence != nil {
		t.Errorf("%s", show(t, m))
	}
	if u := m.Usage; u.Output != 5 || u.Input+u.CacheRead < 10 || u.Details == nil || u.Details.Thinking != 0 {
		t.Errorf("usage %+v", u)
	}
	if again := ask(t, requests["greedy"]); again.Usage.CacheRead == 0 || again.Usage.Input+again.Usage.CacheRead != m.Usage.Input+m.Usage.CacheRead {
		t.Errorf("usage at the second time: %+v, at the first: %+v", again.Usage, m.Usage)
	}
}

func TestStopSequenceIsNamed(t *testing.T) {
	m := ask(t, requests["stop"])
	if *m.StopReason != "stop_sequence" || m.StopSequence == nil || *m.StopSequence != "the" {
		t.Fatalf("%s", show(t, m))
	}
	if strings.Contains(*m.Content[0].Text, "the") {
		t.Errorf("the text has the stop sequence: %q", *m.Content[0].Text)
	}
}

func TestAnswerEndsWithTheContext(t *testing.T) {
	request := func(cats int) string {
		return `{"max_tokens": 32000, "temperature": 0, "messages": [{"role": "user", "content": "Tell me a story.` + strings.Repeat(" cat", cats) + `"}]}`
	}
	room := generatetest.Context - counted(t, request(0)) - 2
	m := ask(t, request(room))
	if *m.StopReason != "model_context_window_exceeded" || m.Usage.Output != 2 {
		t.Errorf("%s", show(t, m))
	}
}

// counted is the number of tokens of a request's prompt.
func counted(t *testing.T, request string) int {
	t.Helper()
	status, text := post(t, "/v1/messages/count_tokens", request)
	var n struct {
		Input int `json:"input_tokens"`
	}
	if err := json.Unmarshal([]byte(text), &n); err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", request, status, err, text)
	}
	return n.Input
}

func TestPrefillIsContinued(t *testing.T) {
	n := counted(t, `{"messages": [{"role": "user", "content": "Tell me a story."}]}`)
	m := ask(t, requests["prefill"])
	if got := m.Usage.Input + m.Usage.CacheRead; got <= n || got > n+5 {
		t.Errorf("%d tokens of prompt, want a few more than %d", got, n)
	}
	if text := *m.Content[0].Text; strings.Contains(text, "Once upon a") || !strings.HasPrefix(text, " time") {
		t.Errorf("the answer is %q", text)
	}
}

func TestThinkingHasItsBlockAndBudget(t *testing.T) {
	m := ask(t, requests["thinking"])
	if len(m.Content) < 2 || m.Content[0].Type != "thinking" || m.Content[1].Type != "text" {
		t.Fatalf("%s", show(t, m))
	}
	if b := m.Content[0]; *b.Thinking == "" || *b.Signature == "" {
		t.Errorf("thinking %q, signature %q", *b.Thinking, *b.Signature)
	}
	if n := m.Usage.Details.Thinking; n < 1 || n > 8 {
		t.Errorf("%d tokens of thinking with a budget of 4", n)
	}
	quiet := ask(t, strings.Replace(requests["thinking"], `"budget_tokens"`, `"display": "omitted", "budget_tokens"`, 1))
	if *quiet.Content[0].Thinking != "" || *quiet.Content[1].Text != *m.Content[1].Text {
		t.Errorf("omitted: %s", show(t, quiet))
	}
	for _, thinking := range []string{"", `"thinking": {"type": "disabled"},`} {
		plain := ask(t, `{"model": "thinker", "max_tokens": 8, "seed": 3, `+thinking+` "messages": [{"role": "user", "content": "A cat?"}]}`)
		if plain.Content[0].Type != "text" {
			t.Errorf("%q: %s", thinking, show(t, plain))
		}
	}
}

func TestToolsRoundTrip(t *testing.T) {
	for _, kind := range []string{"any", "tool"} {
		m := ask(t, requests[kind])
		if *m.StopReason != "tool_use" || len(m.Content) != 1 || m.Content[0].Type != "tool_use" || m.Content[0].Name != "weather" {
			t.Fatalf("%s: %s", kind, show(t, m))
		}
		use := m.Content[0]
		var input struct {
			Place string
			Days  int
		}
		if err := json.Unmarshal(use.Input, &input); err != nil || input.Place == "" || input.Days < 1 || input.Days > 3 {
			t.Fatalf("%s: input %s: %v", kind, use.Input, err)
		}
		data := filetest.Encode(t, m.Content)
		for _, content := range []string{`"sunny"`, `[{"type": "text", "text": "sunny"}]`} {
			for _, failed := range []string{"", `, "is_error": true`} {
				next := ask(t, `{"model": "thinker", "max_tokens": 8, `+weather+`, "messages": [{"role": "user", "content": "Weather in Rome?"}, {"role": "assistant", "content": `+
					string(data)+`}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "`+use.ID+`", "content": `+content+failed+`}, {"type": "text", "text": "So?"}]}]}`)
				if next.Usage.Output == 0 {
					t.Errorf("%s: %s", kind, show(t, next))
				}
			}
		}
	}
	none := ask(t, strings.Replace(requests["tool"], `{"type": "tool", "name": "weather"}`, `{"type": "none"}`, 1))
	if none.Content[0].Type != "text" {
		t.Errorf("none: %s", show(t, none))
	}
}

func TestSchemaHoldsTheAnswer(t *testing.T) {
	m := ask(t, requests["schema"])
	var v map[string]bool
	if err := json.Unmarshal([]byte(*m.Content[0].Text), &v); err != nil || len(v) != 1 {
		t.Errorf("%q: %v", *m.Content[0].Text, err)
	}
}

func TestStatsAndTraceAreThereWhenAskedFor(t *testing.T) {
	if m := ask(t, requests["text"]); m.Foretoken != nil {
		t.Errorf("not requested: %+v", m.Foretoken)
	}
	request := strings.Replace(requests["text"], "{", `{"foretoken": {"stats": true, "trace": true}, `, 1)
	m, h := ask(t, request), listen(t, request)
	if m.Foretoken == nil || m.Foretoken.Stats == nil || len(m.Foretoken.Tokens) != m.Usage.Output || m.Foretoken.Timings.GeneratedTokens != m.Usage.Output {
		t.Errorf("message: %+v", m.Foretoken)
	}
	if len(h.tokens) != m.Usage.Output || h.Foretoken == nil || h.Foretoken.Stats == nil {
		t.Errorf("stream: %d tokens, %+v", len(h.tokens), h.Foretoken)
	}
	text := ""
	for _, token := range h.tokens {
		text += token.Text
	}
	if !strings.HasPrefix(text, *m.Content[0].Text) {
		t.Errorf("the tokens are %q, the text %q", text, *m.Content[0].Text)
	}
	_, _, asked := generatetest.SendWith(t, http.MethodPost, site.URL+"/v1/messages", requests["text"], http.Header{"X-Foretoken-Stats": {"1"}})
	var by message
	if err := json.Unmarshal([]byte(asked), &by); err != nil || by.Foretoken == nil || by.Foretoken.Stats == nil || by.Foretoken.MTP == nil {
		t.Errorf("by header: %v, %+v", err, by.Foretoken)
	}
}

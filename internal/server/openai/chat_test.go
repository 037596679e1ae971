package openai

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

const chatPath = "/v1/chat/completions"

// story is a request that the tests vary.
const story = `"messages": [{"role": "user", "content": "Tell me a story about a cat."}], "seed": 7`

// weather are two tools.
const weather = `"tools": [
	{"type": "function", "function": {"name": "weather", "description": "The weather somewhere", "parameters": {"type": "object",
		"properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": false}}},
	{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}]`

// chatObject is a response of chat completions as a client reads it.
type chatObject struct {
	completion
	Choices []struct {
		Index    int               `json:"index"`
		Message  messageObject     `json:"message"`
		Delta    delta             `json:"delta"`
		LogProbs *chatLogProbs     `json:"logprobs"`
		Finish   *foretoken.Finish `json:"finish_reason"`
	} `json:"choices"`
	Error *errorObject `json:"error"`
}

type chatLogProbs struct {
	Content []tokenLogProb `json:"content"`
	Refusal []tokenLogProb `json:"refusal"`
}

// assemble puts a stream together as clients do.
func assemble(t *testing.T, events []sent) *chatObject {
	t.Helper()
	whole := &chatObject{}
	var tokens []generate.Traced
	for n, e := range events {
		if e.data == "[DONE]" {
			if n != len(events)-1 {
				t.Fatalf("[DONE] is event %d of %d", n, len(events))
			}
			break
		}
		var c chatObject
		if err := json.Unmarshal([]byte(e.data), &c); err != nil || c.Object != "chat.completion.chunk" || e.name != "" || !utf8.ValidString(e.data) {
			t.Fatalf("event %q: %v: %s", e.name, err, e.data)
		}
		if n == 0 {
			whole.completion = c.completion
			whole.Object = "chat.completion"
		}
		if c.ID != whole.ID {
			t.Fatalf("chunk of %s in %s", c.ID, whole.ID)
		}
		if c.Usage != nil {
			whole.Usage = c.Usage
		}
		if c.Foretoken != nil {
			tokens = append(tokens, c.Foretoken.Tokens...)
			whole.Foretoken = c.Foretoken
		}
		for _, one := range c.Choices {
			for len(whole.Choices) <= one.Index {
				next := one
				next.Index = len(whole.Choices)
				whole.Choices = append(whole.Choices, next)
				whole.Choices[next.Index].Delta, whole.Choices[next.Index].LogProbs = delta{}, nil
			}
			to := &whole.Choices[one.Index]
			m := &to.Message
			if one.Delta.Role != "" {
				m.Role = one.Delta.Role
			}
			if text := one.Delta.Content; text != nil {
				if m.Content == nil {
					m.Content = new(string)
				}
				*m.Content += *text
			}
			m.Reasoning += one.Delta.Reasoning
			for _, call := range one.Delta.ToolCalls {
				if call.Index == nil || *call.Index != len(m.ToolCalls) || !json.Valid([]byte(call.Function.Arguments)) {
					t.Fatalf("call %+v after %d", call, len(m.ToolCalls))
				}
				call.Index = nil
				m.ToolCalls = append(m.ToolCalls, call)
			}
			if one.LogProbs != nil {
				if to.LogProbs == nil {
					to.LogProbs = &chatLogProbs{Content: []tokenLogProb{}}
				}
				to.LogProbs.Content = append(to.LogProbs.Content, one.LogProbs.Content...)
			}
			if to.Finish = one.Finish; one.Finish != nil && (one.Delta.Content != nil || len(one.Delta.ToolCalls) > 0) {
				t.Errorf("the last chunk of a choice has content: %s", e.data)
			}
		}
	}
	if whole.Foretoken != nil {
		whole.Foretoken.Tokens = tokens
	}
	for i := range whole.Choices {
		if m := &whole.Choices[i].Message; m.Content != nil && *m.Content == "" && len(m.ToolCalls) > 0 {
			m.Content = nil // the first chunk has it empty
		}
	}
	return whole
}

func TestChatStreamEqualsWhole(t *testing.T) {
	for name, request := range map[string]string{
		"plain":     `"max_tokens": 60`,
		"greedy":    `"max_tokens": 30, "temperature": 0`,
		"choices":   `"max_tokens": 25, "n": 3`,
		"stop":      `"max_tokens": 200, "stop": ["the", "cat "]`,
		"logprobs":  `"max_tokens": 20, "logprobs": true, "top_logprobs": 3`,
		"trace":     `"max_tokens": 40, "foretoken": {"trace": true}`,
		"thinking":  `"max_tokens": 60, "model": "thinker", "enable_thinking": true, "max_thinking_tokens": 20`,
		"effort":    `"max_tokens": 60, "model": "thinker", "reasoning_effort": "low", "thinking_budget": 12, "logprobs": true`,
		"object":    `"max_tokens": 80, "response_format": {"type": "json_object"}`,
		"schema":    `"max_tokens": 80, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}`,
		"regex":     `"max_tokens": 80, "guided_regex": "(yes|no), [a-z]{3}"`,
		"required":  `"max_tokens": 99, "tool_choice": "required", ` + weather,
		"parallel":  `"max_tokens": 99, "tool_choice": "required", "parallel_tool_calls": true, "temperature": 2, "model": "thinker", ` + weather,
		"named":     `"max_tokens": 99, "tool_choice": {"type": "function", "function": {"name": "clock"}}, "n": 2, ` + weather,
		"penalties": `"max_tokens": 30, "presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "min_p": 0.01, "top_k": 50, "xtc_probability": 0.5, "xtc_threshold": 0.1, "logit_bias": {"300": 5}`,
		"depth":     `"max_tokens": 30, "mtp_depth": 2`,
		"auto":      `"max_tokens": 30, "mtp_depth": "auto"`,
	} {
		t.Run("case="+name, func(t *testing.T) {
			request = "{" + story + ", " + request + "}"
			whole := ask[chatObject](t, chatPath, request)
			stream := assemble(t, listen(t, chatPath, strings.Replace(request, "{", `{"stream_options": {"include_usage": true}, `, 1)))
			if stream.Usage == nil {
				t.Fatal("no usage in the stream")
			}
			whole.Usage.PromptDetails, stream.Usage.PromptDetails = promptDetails{}, promptDetails{} // the second finds more in the cache
			if a := &whole.Usage.CompletionDetails; name != "depth" {                                // depth follows measured costs
				a.Accepted, a.Rejected = stream.Usage.CompletionDetails.Accepted, stream.Usage.CompletionDetails.Rejected
				for _, f := range []*details{whole.Foretoken, stream.Foretoken} {
					for i := range f.Tokens {
						f.Tokens[i].Draft, f.Tokens[i].Rejected = 0, nil
					}
				}
			}
			if a, b := stable(t, whole), stable(t, stream); a != b {
				t.Errorf("whole and stream differ:\n%s\n%s", a, b)
			}
		})
	}
}

func TestChatShape(t *testing.T) {
	c := ask[chatObject](t, chatPath, `{"model": "small", `+story+`, "max_completion_tokens": 5}`)
	if !strings.HasPrefix(c.ID, "chatcmpl-") || c.Object != "chat.completion" || c.Created == 0 || c.Model != "small" || !strings.HasPrefix(c.Fingerprint, "fp_") {
		t.Errorf("got %+v", c.completion)
	}
	one := c.Choices[0]
	if len(c.Choices) != 1 || one.Message.Role != "assistant" || *one.Message.Content == "" || *one.Finish != foretoken.FinishLength || one.LogProbs != nil {
		t.Errorf("choice %+v", one)
	}
	u := c.Usage
	if u.Completion != 5 || u.Prompt < 5 || u.Total != u.Prompt+u.Completion {
		t.Errorf("usage %+v", u)
	}
	if *c.Foretoken.Seed != 7 || c.Foretoken.Stats != nil || c.Foretoken.Tokens != nil {
		t.Errorf("details %+v", c.Foretoken)
	}
	again := ask[chatObject](t, chatPath, `{`+story+`, "max_tokens": 5}`)
	if again.Fingerprint != c.Fingerprint || *again.Choices[0].Message.Content != *one.Message.Content {
		t.Errorf("the same request gives %+v", again)
	}
	if *again.Usage.PromptDetails.Cached == 0 {
		t.Error("nothing of the same prompt was known from before")
	}
}

func TestChatGoldenChunks(t *testing.T) {
	var got []string
	for _, e := range listen(t, chatPath, `{`+story+`, "tool_choice": {"type": "function", "function": {"name": "clock"}}, `+weather+`}`) {
		e.data = made.ReplaceAllString(e.data, `"$1"`)
		c := ask[chatObject](t, chatPath, `{`+story+`, "max_tokens": 1}`)
		got = append(got, strings.ReplaceAll(e.data, c.Fingerprint, "FP"))
	}
	head := `{"id":"chatcmpl-","object":"chat.completion.chunk","","model":"tiny","system_fingerprint":"FP","choices":[{"index":0,"delta":`
	want := []string{
		head + `{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
		head + `{"tool_calls":[{"index":0,"id":"call_","type":"function","function":{"name":"clock","arguments":"{}"}}]},"logprobs":null,"finish_reason":null}]}`,
		head + `{},"logprobs":null,"finish_reason":"tool_calls"}],"foretoken":{"seed":7}}`,
		"[DONE]",
	}
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

func TestChatStats(t *testing.T) {
	request := `{` + story + `, "max_tokens": 12, "foretoken": {"stats": true, "trace": true}}`
	c := ask[chatObject](t, chatPath, request)
	f := c.Foretoken
	if f.Stats == nil || f.MTP == nil || f.Timings.GeneratedTokens != 12 || f.Timings.PromptTokens != c.Usage.Prompt || len(f.Tokens) != 12 {
		t.Fatalf("details %+v", f)
	}
	var text strings.Builder
	accepted := 0
	for _, token := range f.Tokens {
		text.WriteString(token.Text)
		if token.Draft > 0 {
			accepted++
		}
	}
	if text.String() != *c.Choices[0].Message.Content {
		t.Errorf("tokens say %q, the answer %q", text.String(), *c.Choices[0].Message.Content)
	}
	if n := *c.Usage.CompletionDetails.Accepted; accepted != n {
		t.Errorf("%d tokens were drafted, %d by the usage", accepted, n)
	}
	_, _, asked := generatetest.SendWith(t, http.MethodPost, site.URL+chatPath, `{`+story+`, "max_tokens": 2}`, http.Header{"X-Foretoken-Stats": {"1"}})
	var byHeader chatObject
	if err := json.Unmarshal([]byte(asked), &byHeader); err != nil || byHeader.Foretoken.Stats == nil || byHeader.Foretoken.Tokens != nil {
		t.Errorf("by its header: %v, %+v", err, byHeader.Foretoken)
	}
}

func TestChatLogProbs(t *testing.T) {
	c := ask[chatObject](t, chatPath, `{`+story+`, "max_tokens": 8, "temperature": 0, "logprobs": true, "top_logprobs": 4}`)
	list := c.Choices[0].LogProbs.Content
	var text []byte
	for _, l := range list {
		for _, b := range l.Bytes {
			text = append(text, byte(b))
		}
		if len(l.Top) != 4 || l.Top[0].Token != l.Token || math.Abs(l.Top[0].LogProb-l.LogProb) > 0 || l.LogProb > 0 || l.Top[1].LogProb > l.LogProb {
			t.Errorf("%+v", l)
		}
	}
	if len(list) != 8 || string(text) != *c.Choices[0].Message.Content {
		t.Errorf("%d tokens that say %q, want %q", len(list), text, *c.Choices[0].Message.Content)
	}
}

func TestChatLogitBiasRulesOutAToken(t *testing.T) {
	request := `{` + story + `, "max_tokens": 1, "temperature": 0, "foretoken": {"trace": true}`
	first := ask[chatObject](t, chatPath, request+`}`).Foretoken.Tokens[0]
	id := filetest.Encode(t, first.ID)
	second := ask[chatObject](t, chatPath, request+`, "logit_bias": {"`+string(id)+`": -100}}`).Foretoken.Tokens[0]
	if second.ID == first.ID {
		t.Errorf("token %d was drawn in spite of its bias", first.ID)
	}
}

func TestChatToolsRequired(t *testing.T) {
	c := ask[chatObject](t, chatPath, `{`+story+`, "tool_choice": "required", "parallel_tool_calls": false, `+weather+`}`)
	one := c.Choices[0]
	if *one.Finish != foretoken.FinishToolCalls || one.Message.Content != nil || len(one.Message.ToolCalls) != 1 {
		t.Fatalf("got %+v", one)
	}
	call := one.Message.ToolCalls[0]
	var arguments struct {
		City string
		Days int
	}
	d := json.NewDecoder(strings.NewReader(call.Function.Arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&arguments); err != nil || call.Type != "function" || !strings.HasPrefix(call.ID, "call_") || call.Index != nil {
		t.Errorf("call %+v: %v", call, err)
	}
}

func TestChatAllowedTools(t *testing.T) {
	for _, name := range []string{"clock", "weather"} {
		c := ask[chatObject](t, chatPath, `{`+story+`, "parallel_tool_calls": false, `+weather+`, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required",
			"tools": [{"type": "function", "function": {"name": "`+name+`"}}]}}}`)
		if calls := c.Choices[0].Message.ToolCalls; len(calls) != 1 || calls[0].Function.Name != name {
			t.Errorf("calls %+v, want one of %s", calls, name)
		}
	}
}

func TestChatFormats(t *testing.T) {
	for request, holds := range map[string]func(text string) bool{
		`"response_format": {"type": "json_object"}`: func(text string) bool {
			var v map[string]any
			return json.Unmarshal([]byte(text), &v) == nil
		},
		`"response_format": {"type": "json_object", "schema": {"const": {"a": [1]}}}`: func(text string) bool {
			return json.Valid([]byte(text)) && strings.Contains(text, `"a"`)
		},
		`"guided_json": {"enum": [17, "x"]}`:             func(text string) bool { return text == "17" || text == `"x"` },
		`"guided_choice": ["left", "right"]`:             func(text string) bool { return text == "left" || text == "right" },
		`"guided_regex": "[0-9]{4}-[0-9]{2}"`:            func(text string) bool { return len(text) == 7 && text[4] == '-' },
		`"response_format": {"type": "text"}`:            func(text string) bool { return text != "" },
		`"model": "thinker", "guided_choice": ["maybe"]`: func(text string) bool { return text == "maybe" },
	} {
		c := ask[chatObject](t, chatPath, `{`+story+`, "max_thinking_tokens": 8, "max_tokens": 300, "temperature": 0.6, `+request+`}`)
		if text := *c.Choices[0].Message.Content; *c.Choices[0].Finish != foretoken.FinishStop || !holds(text) {
			t.Errorf("%s: %q, finish %s", request, text, *c.Choices[0].Finish)
		}
	}
}

func TestChatThinking(t *testing.T) {
	c := ask[chatObject](t, chatPath, `{"model": "thinker", `+story+`, "enable_thinking": true, "max_thinking_tokens": 10, "max_tokens": 60, "logprobs": true}`)
	m := c.Choices[0].Message
	n := c.Usage.CompletionDetails.Reasoning
	if m.Reasoning == "" || *m.Content == "" || strings.Contains(m.Reasoning+*m.Content, "think>") || n < 10 || n > 16 {
		t.Fatalf("%d tokens of thinking in %+v: %q, %q", n, c.Usage, m.Reasoning, *m.Content)
	}
	if got := len(c.Choices[0].LogProbs.Content); got+n > c.Usage.Completion || got == 0 {
		t.Errorf("log-probabilities of %d tokens, %d of %d were thinking", got, n, c.Usage.Completion)
	}
	for _, off := range []string{`"enable_thinking": false`, `"reasoning_effort": "none"`, `"chat_template_kwargs": {"enable_thinking": false}`, `"reasoning_effort": "high", "enable_thinking": false`} {
		c := ask[chatObject](t, chatPath, `{"model": "thinker", `+story+`, "max_tokens": 20, `+off+`}`)
		if c.Choices[0].Message.Reasoning != "" || c.Usage.CompletionDetails.Reasoning != 0 {
			t.Errorf("%s: %+v", off, c.Choices[0].Message)
		}
	}
}

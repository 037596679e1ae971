package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/body"
)

const responsesPath = "/v1/responses"

// flatWeather are the tools as responses have them.
const flatWeather = `"tools": [{"type": "function", "name": "weather", "description": "d", "strict": true, "parameters": {"type": "object",
	"properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": false}}]`

// hear combines a stream of events, as clients do, and checks their order.
func hear(t *testing.T, events []sent) (last *responseObject, text, thought string, calls []string) {
	t.Helper()
	open := map[int]bool{}
	for n, e := range events {
		var v event
		if err := json.Unmarshal([]byte(strings.ReplaceAll(e.data, `"type":"error"`, `"type":"error!"`)), &v); err != nil || v.Type != e.name || v.Sequence != n {
			t.Fatalf("event %d, %s: %v: %s", n, e.name, err, e.data)
		}
		last = v.Response
		switch v.Type {
		case "response.created", "response.in_progress":
			if v.Response.Status != "in_progress" || n > 1 {
				t.Errorf("event %d: %s", n, e.data)
			}
		case "response.output_item.added":
			open[*v.OutputIndex] = true
			if v.Item.Status != "in_progress" || *v.OutputIndex != len(open)-1 {
				t.Errorf("item %d of %d: %s", *v.OutputIndex, len(open), e.data)
			}
		case "response.output_item.done":
			open[*v.OutputIndex] = false
		case "response.output_text.delta":
			text += *v.Delta
		case "response.reasoning_text.delta":
			thought += *v.Delta
		case "response.function_call_arguments.done":
			calls = append(calls, v.Name+" "+*v.Arguments)
		case "response.function_call_arguments.delta", "response.content_part.added", "response.content_part.done",
			"response.output_text.done", "response.reasoning_text.done", "response.completed", "response.incomplete":
		default:
			t.Errorf("an event %s", e.data)
		}
	}
	for i, o := range open {
		if o {
			t.Errorf("item %d was not ended", i)
		}
	}
	return last, text, thought, calls
}

func TestResponseStreamEqualsWhole(t *testing.T) {
	for name, request := range map[string]string{
		"text":     `"max_output_tokens": 40`,
		"end":      `"max_output_tokens": 400, "instructions": "Be brief.", "stop": ["."]`,
		"logprobs": `"max_output_tokens": 10, "include": ["message.output_text.logprobs"], "top_logprobs": 2`,
		"thinking": `"model": "thinker", "max_output_tokens": 60, "reasoning": {"effort": "low", "summary": "auto"}, "max_thinking_tokens": 10`,
		"tools":    `"model": "thinker", "max_thinking_tokens": 4, "tool_choice": "required", "parallel_tool_calls": false, ` + flatWeather,
		"schema":   `"max_output_tokens": 80, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}}`,
		"trace":    `"max_output_tokens": 10, "foretoken": {"trace": true}`,
	} {
		t.Run("case="+name, func(t *testing.T) {
			request = `{"seed": 5, "mtp_depth": 1, "store": false, "metadata": {"a": "b"}, "input": "Tell me a story.", ` + request + `}`
			whole := ask[responseObject](t, responsesPath, request)
			stream, text, thought, calls := hear(t, listen(t, responsesPath, request))
			stream.Usage.InputDetails, whole.Usage.InputDetails = promptDetails{}, promptDetails{}
			// The second request may draft from another source, and the engine may be ahead of a stop text.
			a, b := &whole.Usage.OutputDetails, &stream.Usage.OutputDetails
			a.Accepted, a.Rejected = b.Accepted, b.Rejected
			whole.Foretoken.Tokens = nil // a stream has them along the way
			if a, b := stable(t, whole), stable(t, stream); a != b {
				t.Errorf("whole and stream differ:\n%s\n%s", a, b)
			}
			for _, i := range whole.Output {
				switch i.Type {
				case "message":
					text = strings.TrimPrefix(text, (*i.Content)[0].Text)
				case "reasoning":
					thought = strings.TrimPrefix(thought, (*i.Content)[0].Text)
				case "function_call":
					if len(calls) == 0 || calls[0] != i.Name+" "+*i.Arguments {
						t.Fatalf("%v, want %+v", calls, i)
					}
					calls = calls[1:]
				}
			}
			if text+thought != "" || len(calls) > 0 || len(whole.Output) == 0 {
				t.Errorf("deltas say more than %d items: %q, %q, %v", len(whole.Output), text, thought, calls)
			}
		})
	}
}

func TestResponseToolRoundTrip(t *testing.T) {
	first := ask[responseObject](t, responsesPath, `{"model": "thinker", "seed": 1, "input": [{"role": "user", "content": [{"type": "input_text", "text": "How is the weather?"}]}],
		"max_thinking_tokens": 6, "tool_choice": {"type": "function", "name": "weather"}, `+flatWeather+`}`)
	call := first.Output[len(first.Output)-1]
	if first.Status != "completed" || call.Type != "function_call" || call.CallID == "" || !json.Valid([]byte(*call.Arguments)) {
		t.Fatalf("got %+v", call)
	}
	output := fmt.Sprintf(`{"type": "function_call_output", "call_id": %q, "output": "It rains."}`, call.CallID)
	rest := `"model": "thinker", "seed": 1, "max_output_tokens": 30, "max_thinking_tokens": 6, "tool_choice": "none", ` + flatWeather
	stored := ask[responseObject](t, responsesPath, fmt.Sprintf(`{"previous_response_id": %q, "input": [%s], %s}`, first.ID, output, rest))
	// A client that sends all of it itself gets the same.
	var items, references []string
	for _, i := range first.Output {
		text := filetest.Encode(t, i)
		items = append(items, string(text))
		references = append(references, fmt.Sprintf(`{"type": "item_reference", "id": %q}`, i.ID))
	}
	sent := ask[responseObject](t, responsesPath, fmt.Sprintf(`{"store": false, "input": [{"role": "user", "content": "How is the weather?"}, %s, %s], %s}`,
		strings.Join(items, ", "), output, rest))
	if a, b := stable(t, stored.Output), stable(t, sent.Output); a != b || stored.Usage.Input != sent.Usage.Input {
		t.Errorf("stored and sent differ, %d and %d tokens:\n%s\n%s", stored.Usage.Input, sent.Usage.Input, a, b)
	}
	// So does one that names the items by their ids.
	named := ask[responseObject](t, responsesPath, fmt.Sprintf(`{"store": false, "input": [{"role": "user", "content": "How is the weather?"}, %s, %s], %s}`,
		strings.Join(references, ", "), output, rest))
	if a, b := stable(t, named.Output), stable(t, sent.Output); a != b || named.Usage.Input != sent.Usage.Input {
		t.Errorf("named and sent differ, %d and %d tokens:\n%s\n%s", named.Usage.Input, sent.Usage.Input, a, b)
	}
	if *stored.Previous != first.ID || sent.Previous != nil || sent.Store || !stored.Store {
		t.Errorf("after %v and %v", stored.Previous, sent.Previous)
	}
}

func TestResponseStore(t *testing.T) {
	r := ask[responseObject](t, responsesPath, `{"seed": 1, "input": "Hello.", "max_output_tokens": 3, "instructions": "Be brief.", "metadata": {"k": "v"}}`)
	status, text := send(t, http.MethodGet, responsesPath+"/"+r.ID, "")
	var again responseObject
	if err := json.Unmarshal([]byte(text), &again); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, text)
	}
	if a, b := stable(t, r), stable(t, again); a != b || again.ID != r.ID {
		t.Errorf("%s was stored as\n%s, was\n%s", r.ID, b, a)
	}
	next := ask[responseObject](t, responsesPath, `{"previous_response_id": "`+r.ID+`", "seed": 1, "input": "And?", "max_output_tokens": 3}`)
	if next.Usage.Input <= r.Usage.Input-6 || next.Instructions != nil {
		t.Errorf("%d tokens after %d", next.Usage.Input, r.Usage.Input)
	}
	if status, text = send(t, http.MethodDelete, responsesPath+"/"+r.ID, ""); status != http.StatusOK || text != `{"id":"`+r.ID+`","object":"response","deleted":true}`+"\n" {
		t.Errorf("status %d: %s", status, text)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if status, text = send(t, method, responsesPath+"/"+r.ID, ""); status != http.StatusNotFound || !strings.Contains(text, `"code":"not_found"`) {
			t.Errorf("%s: status %d: %s", method, status, text)
		}
	}
	// The successor of a deleted response still exists.
	ask[responseObject](t, responsesPath, `{"previous_response_id": "`+next.ID+`", "seed": 1, "input": "And?", "max_output_tokens": 3}`)
}

func TestStoreStaysBounded(t *testing.T) {
	s := newStore()
	for i := range maxStored + 10 {
		s.put("", &stored{id: fmt.Sprint(i), items: []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}})
	}
	if n, ids, _ := s.Len(); s.get("", "9") != nil || s.get("", "10") == nil || s.get("", "a10") != nil || n != maxStored || ids != 3*maxStored {
		t.Errorf("%d are stored, with %d ids", n, ids)
	}
	long := []chat.Message{{Content: chat.Text(strings.Repeat("x", maxStoredBytes/4))}}
	for i := range 5 {
		s.put("", &stored{id: fmt.Sprint("long", i), messages: long})
		s.get("", "long0") // the last used stay
	}
	if n, _, size := s.Len(); size > maxStoredBytes || s.get("", "long0") == nil || s.get("", "long1") != nil || n > 4 {
		t.Errorf("%d bytes in %d", size, n)
	}
	s.put("", &stored{id: "huge", body: make([]byte, maxStoredBytes+1)})
	if n, ids, size := s.Len(); s.get("", "huge") != nil || size != 0 || n != 0 || ids != 0 {
		t.Errorf("%d bytes after one that is too large", size)
	}
}

// All text of a message counts, wherever a client has put it.
func TestSizeOfMessages(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, m := range map[string]chat.Message{
		"text":           {Content: chat.Text(long)},
		"thinking":       {ReasoningContent: &long},
		"beside image":   {Content: chat.Parts(chat.Part{Media: &chat.Media{}}, chat.Part{Text: long[:400]}, chat.Part{Text: long[400:]})},
		"id of a result": {ToolCallID: long},
		"id of a call":   {ToolCalls: []chat.ToolCall{{ID: long}}},
		"name of a tool": {ToolCalls: []chat.ToolCall{{Name: long}}},
	} {
		if n := sizeOf(m); n < len(long) {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

func TestInputItemsBecomeMessages(t *testing.T) {
	v := body.Parse([]byte(`{"input": [
		{"role": "developer", "content": "d"},
		{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
		{"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
		{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}], "status": "completed"},
		{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\": 1}"},
		{"type": "function_call", "call_id": "2", "name": "g", "arguments": ""},
		{"type": "function_call_output", "call_id": "1", "output": "one"},
		{"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "two"}]},
		{"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
		{"type": "message", "role": "assistant", "content": "e"}]}`))
	var got []string
	for _, m := range new(responseRequest).input(v.Field("input"), nil) {
		text, _ := m.Content.Text()
		line := m.Role + " " + text + m.ToolCallID
		if m.ReasoningContent != nil {
			line += " thought " + *m.ReasoningContent
		}
		for _, c := range m.ToolCalls {
			line += " " + c.ID + c.Name + c.Arguments.JSON()
		}
		got = append(got, line)
	}
	want := `developer d|user ab|assistant c thought hm 1f{"x": 1} 2g{}|tool one1|tool two2|assistant e thought so`
	if err := v.Err(); err != nil || strings.Join(got, "|") != want {
		t.Errorf("%v:\n%s\n%s", err, strings.Join(got, "|"), want)
	}
}

// TestInputTokensAreCounted counts the prompt of a response, which may be longer than the context.
func TestInputTokensAreCounted(t *testing.T) {
	count := func(request string) (counted struct {
		Object string
		Input  int `json:"input_tokens"`
	},
	) {
		status, text := send(t, http.MethodPost, responsesPath+"/input_tokens", request)
		if err := json.Unmarshal([]byte(text), &counted); err != nil || status != http.StatusOK || counted.Object != "response.input_tokens" {
			t.Errorf("status %d, %v: %s", status, err, text)
		}
		return counted
	}
	request := `{"instructions": "Be kind.", "input": [{"role": "user", "content": "Hello."}], "max_output_tokens": 1}`
	r := ask[responseObject](t, responsesPath, request)
	if n := count(request).Input; n == 0 || n != r.Usage.Input {
		t.Errorf("%d tokens, and the response says %d", n, r.Usage.Input)
	}
	if n := count(`{"input": "` + strings.Repeat("many words ", 2000) + `"}`).Input; n < 4000 {
		t.Errorf("%d tokens of 4000 words", n)
	}
}

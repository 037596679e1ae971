package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/filetest"
)

// kit are tools of all kinds that a client runs: in namespaces and out of them, with arguments
// and with texts.
const kit = `"tools": [
	{"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}, "strict": false},
	{"type": "namespace", "name": "mcp__shop", "description": "A shop.", "tools": [
		{"type": "function", "name": "buy", "description": "Buys", "parameters": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": false}, "defer_loading": true},
		{"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-c]{3}\"\\n"}}]},
	{"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "function", "name": "nap", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}]},
	{"type": "custom", "name": "patch", "description": "Changes files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"begin\" LF line~1..2 \"end\"\nline: (\"+\" | \"-\") /[ab\"]{1,2}/ LF\n%import common.LF"}}]`

func TestCallsAreReportedAsTheClientKnowsThem(t *testing.T) {
	for _, c := range []struct {
		choice, kind, namespace, name string
		says                          *regexp.Regexp
	}{
		{`{"type": "function", "name": "clock"}`, "function_call", "", "clock", regexp.MustCompile(`^\{\}$`)},
		{`{"type": "function", "name": "buy", "namespace": "mcp__shop"}`, "function_call", "mcp__shop", "buy", regexp.MustCompile(`^\{"n": [1-9]\}$`)},
		{`{"type": "function", "name": "nap", "namespace": "functions"}`, "function_call", "functions", "nap", regexp.MustCompile(`^\{`)},
		{`{"type": "custom", "name": "note", "namespace": "mcp__shop"}`, "custom_tool_call", "mcp__shop", "note", regexp.MustCompile(`^[a-c]{3}"\n$`)},
		{`{"type": "custom", "name": "patch"}`, "custom_tool_call", "", "patch", regexp.MustCompile(`^begin\n([+-][ab"]{1,2}\n){1,2}end$`)},
	} {
		request := `{"model": "thinker", "seed": 3, "reasoning": {"effort": "none"}, "max_output_tokens": 200, "input": "Go on.", "tool_choice": ` + c.choice + `, ` + kit + `}`
		whole := ask[responseObject](t, responsesPath, request)
		if len(whole.Output) != 1 {
			t.Fatalf("%s: %s", c.choice, stable(t, whole.Output))
		}
		call := whole.Output[0]
		said := call.Arguments
		if c.kind == "custom_tool_call" {
			said = call.Input
		}
		if call.Type != c.kind || call.Namespace != c.namespace || call.Name != c.name || said == nil || !c.says.MatchString(*said) || call.CallID == "" {
			t.Errorf("%s: %s", c.choice, stable(t, call))
			continue
		}
		var deltas strings.Builder
		var last event
		for _, e := range listen(t, responsesPath, request) {
			var got event
			filetest.Decode(t, e.data, &got)
			switch e.name {
			case "response.custom_tool_call_input.delta", "response.function_call_arguments.delta":
				deltas.WriteString(*got.Delta)
			case "response.custom_tool_call_input.done":
				if *got.Input != *said {
					t.Errorf("%s: done with %q", c.choice, *got.Input)
				}
			case "response.output_item.done":
				last = got
			}
		}
		if a, b := stable(t, call), stable(t, last.Item); a != b || deltas.String() != *said {
			t.Errorf("%s: whole and stream differ, deltas %q:\n%s\n%s", c.choice, deltas.String(), a, b)
		}
	}
}

// A conversation with such calls can go on, from the store and sent again, and is the same.
func TestCustomToolRoundTrip(t *testing.T) {
	rest := `"model": "thinker", "seed": 1, "reasoning": {"effort": "none"}, ` + kit
	first := ask[responseObject](t, responsesPath, `{"input": "Change it.", "max_output_tokens": 200, "tool_choice": {"type": "custom", "name": "note", "namespace": "mcp__shop"}, `+rest+`}`)
	call := first.Output[0]
	output := fmt.Sprintf(`{"type": "custom_tool_call_output", "call_id": %q, "name": "note", "output": [{"type": "input_text", "text": "done"}]}`, call.CallID)
	thought := `{"type": "reasoning", "id": "rs_1", "summary": [], "content": null, "encrypted_content": "gAAAA"}`
	text := filetest.Encode(t, call)
	more := `"max_output_tokens": 8, "tool_choice": "none", ` + rest
	stored := ask[responseObject](t, responsesPath, fmt.Sprintf(`{"previous_response_id": %q, "input": [%s], %s}`, first.ID, output, more))
	sent := ask[responseObject](t, responsesPath, fmt.Sprintf(`{"store": false, "input": [{"role": "user", "content": "Change it."}, %s, %s, %s], %s}`, thought, text, output, more))
	if a, b := stable(t, stored.Output), stable(t, sent.Output); a != b || stored.Usage.Input != sent.Usage.Input {
		t.Errorf("stored and sent differ, %d and %d tokens:\n%s\n%s", stored.Usage.Input, sent.Usage.Input, a, b)
	}
}

func TestChatCustomTools(t *testing.T) {
	tools := `"tools": [{"type": "custom", "custom": {"name": "word", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[xy]{2}"}}}},
		{"type": "custom", "custom": {"name": "free", "format": {"type": "text"}}}]`
	request := `{"model": "thinker", ` + story + `, "enable_thinking": false, "max_tokens": 100, "tool_choice": {"type": "custom", "custom": {"name": "word"}}, ` + tools + `}`
	c := ask[chatObject](t, chatPath, request)
	calls := c.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Type != "custom" || calls[0].Function != nil || calls[0].Custom.Name != "word" || !regexp.MustCompile(`^[xy]{2}$`).MatchString(calls[0].Custom.Input) {
		t.Fatalf("%s", stable(t, c))
	}
	text := filetest.Encode(t, c.Choices[0].Message)
	ask[chatObject](t, chatPath, `{"model": "thinker", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi."}, `+string(text)+`, {"role": "tool", "tool_call_id": "`+calls[0].ID+`", "content": "ok"}], `+tools+`}`)
}

// A schema that cannot be compiled does not stop tools that are not strict, only because
// another tool has a grammar.
func TestToolsBesideGrammarsNeedNoSchema(t *testing.T) {
	odd := `"tools": [{"type": "function", "name": "odd", "parameters": {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}},
		{"type": "custom", "name": "word", "format": {"type": "grammar", "syntax": "regex", "definition": "[xy]{2}"}}]`
	ask[responseObject](t, responsesPath, `{"model": "thinker", "input": "a", "max_output_tokens": 2, `+odd+`}`)
	ask[responseObject](t, responsesPath, `{"model": "thinker", "input": "a", "max_output_tokens": 2, "parallel_tool_calls": false, `+odd+`}`)
}

// A call that the limit of tokens cuts off is neither a call nor text.
func TestCallsThatAreCutOffLeaveNothing(t *testing.T) {
	for n := 1; n < 24; n += 3 {
		request := fmt.Sprintf(`{"model": "thinker", %s, "enable_thinking": false, "max_tokens": %d, "tool_choice": {"type": "function", "function": {"name": "weather"}}, %s}`, story, n, weather)
		c := ask[chatObject](t, chatPath, request).Choices[0]
		if *c.Finish == foretoken.FinishLength && (c.Message.Content == nil || *c.Message.Content != "" || len(c.Message.ToolCalls) > 0) {
			t.Errorf("%d tokens: %s", n, stable(t, c))
		}
		for _, e := range listen(t, chatPath, request) {
			if strings.Contains(e.data, "tool_call>") || strings.Contains(e.data, `"content":"<`) {
				t.Errorf("%d tokens, streamed: %s", n, e.data)
			}
		}
		request = fmt.Sprintf(`{"model": "thinker", "input": "Go on.", "reasoning": {"effort": "none"}, "max_output_tokens": %d, "tool_choice": {"type": "custom", "name": "patch"}, %s}`, n, kit)
		r := ask[responseObject](t, responsesPath, request)
		if r.Status == "incomplete" && len(r.Output) > 0 {
			t.Errorf("%d tokens: %s", n, stable(t, r.Output))
		}
		if _, text, _, calls := hear(t, listen(t, responsesPath, request)); r.Status == "incomplete" && (text != "" || len(calls) > 0) {
			t.Errorf("%d tokens, streamed: %q %v", n, text, calls)
		}
	}
}

func TestNamespacesAreChecked(t *testing.T) {
	for tools, want := range map[string]string{
		`[{"type": "namespace", "tools": []}]`:                                                                                 "tools[0].name: this field is missing",
		`[{"type": "namespace", "name": "a"}]`:                                                                                 "tools[0].tools: this field is missing",
		`[{"type": "namespace", "name": "a", "tools": [{"type": "function"}]}]`:                                                "tools[0].tools[0].name: this field is missing",
		`[{"type": "custom", "name": ""}]`:                                                                                     "tools[0].name: the name is empty",
		`[{"type": "custom", "name": "a", "format": {"type": "verse"}}]`:                                                       `tools[0].format.type: "verse", want one of`,
		`[{"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "ebnf", "definition": ""}}]`:                 `tools[0].format.syntax: "ebnf", want one of`,
		`[{"type": "custom", "name": "a__b"}, {"type": "namespace", "name": "a", "tools": [{"type": "custom", "name": "b"}]}]`: `two tools have the name "a__b"`,
	} {
		status, text := send(t, http.MethodPost, responsesPath, `{"input": "a", "tools": `+tools+`}`)
		var got errorBody
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusBadRequest || !strings.Contains(got.Error.Message, want) {
			t.Errorf("%s: status %d: %s, want %s", tools, status, text, want)
		}
	}
}

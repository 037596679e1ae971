package generate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/jinja"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

var service *generate.Service

func TestMain(m *testing.M) {
	h, done, err := generatetest.Open(generatetest.Caller, generatetest.Lines, generatetest.Tight, generatetest.Fenced, generatetest.Marked)
	if err != nil {
		panic(err)
	}
	service = h
	code := m.Run()
	if err := done(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// tools are two tools, one with an argument.
func tools(t *testing.T) []chat.Tool {
	t.Helper()
	list, err := chat.DecodeTools([]byte(`[
		{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties":
			{"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": false}}},
		{"type": "function", "function": {"name": "clock"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func user(text string) []chat.Message {
	return []chat.Message{{Role: "user", Content: chat.Text(text)}}
}

// play runs a request to its end.
func play(t *testing.T, a *generate.Request) *generate.Run {
	t.Helper()
	run, err := service.Start(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for _, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// TestCallsFollowTheirSchemas demands calls in every way there is, of models that are
// taught each syntax.
func TestCallsFollowTheirSchemas(t *testing.T) {
	for model, form := range map[string]string{
		generatetest.Thinker: "<tool_call>\n{\"name\": \"", generatetest.Caller: "<tool_call>\n<function=",
		generatetest.Lines: "\n<tool_call>", generatetest.Tight: "<tool_call>", generatetest.Fenced: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
		generatetest.Marked: "<|tool_call>call:",
	} {
		seeds := uint64(3)
		if model != generatetest.Thinker && model != generatetest.Caller {
			seeds = 1 // the engine does the same for all
		}
		for seed := range seeds {
			for name, c := range map[string]struct {
				request generate.Request
				check   func(calls []chat.ToolCall) bool
			}{
				"required": {generate.Request{Calls: generate.CallRequired}, func(calls []chat.ToolCall) bool { return len(calls) == 1 }},
				"several":  {generate.Request{Calls: generate.CallRequired, Parallel: true, Request: foretoken.Request{MaxTokens: 300}}, func(calls []chat.ToolCall) bool { return len(calls) >= 1 }},
				"named": {generate.Request{Calls: generate.CallNamed, Named: "weather"}, func(calls []chat.ToolCall) bool {
					return len(calls) == 1 && calls[0].Name == "weather"
				}},
				"none": {generate.Request{Calls: generate.CallNone, Request: foretoken.Request{MaxTokens: 20}}, func(calls []chat.ToolCall) bool { return len(calls) == 0 }},
			} {
				a := c.request
				a.Model, a.Messages, a.Tools, a.Seed = model, user("What is the weather?"), tools(t), &seed
				off := false
				a.Thinking = &off
				if a.MaxTokens == 0 {
					a.MaxTokens = 200
				}
				answer := play(t, &a).Answers[0]
				if !c.check(answer.ToolCalls) && answer.Finish != foretoken.FinishLength || name != "none" && !strings.HasPrefix(answer.Text(), form) {
					t.Errorf("%s, %s, seed %d: %q gives %d calls", model, name, seed, answer.Text(), len(answer.ToolCalls))
				}
				for _, call := range answer.ToolCalls {
					var args struct{ City string }
					if err := json.Unmarshal([]byte(call.Arguments.JSON()), &args); err != nil || call.Name == "weather" && args.City != "Paris" && args.City != "Rome" {
						t.Errorf("%s, %s: %s(%s): %v", model, name, call.Name, call.Arguments.JSON(), err)
					}
				}
				if len(answer.ToolCalls) > 0 && answer.Finish != foretoken.FinishToolCalls && name != "several" {
					t.Errorf("%s, %s: finish %q after calls", model, name, answer.Finish)
				}
			}
		}
	}
}

// TestCallsFollowThinking has a call where the template would put it.
func TestCallsFollowThinking(t *testing.T) {
	on, seed := true, uint64(5)
	for model, want := range map[string][2]string{
		generatetest.Caller: {"", "\n</think>\n\n<tool_call>\n<function=weather>\n<parameter=city>\n"},
		generatetest.Lines:  {"\n<think>", "</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>"},
		generatetest.Tight:  {"", "</think><tool_call>weather<arg_key>city</arg_key><arg_value>"},
		generatetest.Marked: {"<|channel>thought\n", "\n<channel|><|tool_call>call:weather{city:<|\"|>"},
		generatetest.Fenced: {"", "\n</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"},
	} {
		a := generate.Request{Model: model, Messages: user("The weather?"), Tools: tools(t), Calls: generate.CallNamed, Named: "weather", Thinking: &on, Request: foretoken.Request{MaxThinking: 4, MaxTokens: 200}}
		a.Seed = &seed
		answer := play(t, &a).Answers[0]
		if len(answer.ToolCalls) != 1 || !strings.HasPrefix(answer.Text(), want[0]) || !strings.Contains(answer.Text(), want[1]) || answer.Content() != "" || answer.Reasoning() == "" {
			t.Errorf("%s, after thinking: %q, %d calls", model, answer.Text(), len(answer.ToolCalls))
		}
	}
}

// TestHotCallsFitTheirSchemas draws nearly at random, without schemas whose texts would hardly end.
func TestHotCallsFitTheirSchemas(t *testing.T) {
	properties := []string{
		`{"type": "string", "maxLength": 9}`, `{"enum": ["a b", "c", null]}`, `{"type": "string", "pattern": "^[a-c]{1,3}$"}`, `{"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}`,
		`{"type": "integer", "minimum": -20, "maximum": 3000}`, `{"type": "boolean"}`, `{"type": ["boolean", "null"]}`, `{"$ref": "#/$defs/word"}`, `{"enum": [1, 2.5, false]}`,
		`{"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2}`,
		`{"type": "object", "properties": {"s": {"type": "string", "maxLength": 5}}, "required": ["s"], "additionalProperties": false}`,
	}
	hot, off, one := 2.0, false, 1.0
	for model, begin := range map[string]string{
		generatetest.Thinker: "<tool_call>\n{", generatetest.Caller: "<tool_call>\n<function=f>\n",
		generatetest.Lines: "\n<tool_call>f\n", generatetest.Tight: "<tool_call>f<", generatetest.Fenced: "<｜tool▁calls▁begin｜>",
		generatetest.Marked: "<|tool_call>call:f{",
	} {
		ended, seeds := 0, uint64(8)
		if model != generatetest.Thinker && model != generatetest.Caller {
			seeds = 3
		}
		for seed := range seeds {
			list, err := chat.DecodeTools([]byte(generate.RandomTool(rand.New(rand.NewPCG(1, seed)), properties)))
			if err != nil {
				t.Fatal(err)
			}
			a := generate.Request{Model: model, Messages: user("Go."), Tools: list, Calls: generate.CallRequired, Thinking: &off, Request: foretoken.Request{MaxTokens: 250}}
			a.Temperature, a.TopP, a.Seed = &hot, &one, &seed
			answer := play(t, &a).Answers[0]
			if answer.Finish == foretoken.FinishLength {
				continue
			}
			ended++
			if len(answer.ToolCalls) != 1 || !strings.HasPrefix(answer.Text(), begin) {
				t.Fatalf("%s, seed %d: %q", model, seed, answer.Text())
			}
			if fault := generate.Fault(t, list[0], answer.ToolCalls[0]); fault != "" {
				t.Errorf("%s, seed %d: %q: %s", model, seed, answer.Text(), fault)
			}
		}
		if t.Logf("%s: %d calls", model, ended); ended < int(seeds)/2 {
			t.Errorf("%s: only %d calls", model, ended)
		}
	}
}

// TestChoicesAreSeededOneByOne generates several answers at once, each equal to that of its seed
// alone.
func TestChoicesAreSeededOneByOne(t *testing.T) {
	first := uint64(40) // a depth that follows measured costs may be 0
	temperature := 0.9
	request := func(seed uint64, n int) *generate.Request {
		a := &generate.Request{Messages: user("Tell me a story."), Choices: n, Request: foretoken.Request{MaxTokens: 24, Depth: 2}}
		a.Seed, a.Temperature = &seed, &temperature
		return a
	}
	several := play(t, request(first, 3))
	var texts []string
	for i, answer := range several.Answers {
		alone := play(t, request(first+uint64(i), 1))
		if alone.Answers[0].Text() != answer.Text() {
			t.Errorf("answer %d is %q, and alone %q", i, answer.Text(), alone.Answers[0].Text())
		}
		texts = append(texts, answer.Text())
	}
	if slices.Sort(texts); len(slices.Compact(texts)) == 1 {
		t.Error("all answers are the same")
	}
	if u := several.Usage(); u.Prompt == 0 || u.Completion == 0 || u.Accepted+u.Rejected == 0 {
		t.Errorf("usage %+v", u)
	}
}

func TestNamesAreListedOnce(t *testing.T) {
	s := &generate.Service{
		Library: library.New(library.Options{Names: func() []string { return []string{"b", "a"} }}),
		Aliases: map[string]string{"z": "a", "b": "b", "c": "b"}, // the second is a name that was given again
	}
	if got := strings.Join(s.Names(), " "); got != "b a c z" {
		t.Errorf("got %s", got)
	}
}

// TestTopPZeroIsGreedy has a nucleus that no token is needed for: it is the likeliest one.
func TestTopPZeroIsGreedy(t *testing.T) {
	text := func(temperature, topP float64) string {
		a := &generate.Request{Messages: user("Tell me a story."), Request: foretoken.Request{MaxTokens: 24}}
		a.Temperature, a.TopP = &temperature, &topP
		return play(t, a).Answers[0].Text()
	}
	if got, want := text(5, 0), text(0, 1); got != want {
		t.Errorf("%q, and greedy %q", got, want)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	bad := func(f func(*generate.Request)) *generate.Request {
		a := &generate.Request{Messages: user("Hi.")}
		f(a)
		return a
	}
	ten, minus := 10.0, -1
	for want, a := range map[string]*generate.Request{
		"404 model":           bad(func(a *generate.Request) { a.Model = "absent" }),
		"400 n":               bad(func(a *generate.Request) { a.Choices = 99 }),
		"400 top_p":           bad(func(a *generate.Request) { a.TopP = &ten }),
		"400 top_k":           bad(func(a *generate.Request) { a.TopK = &minus }),
		"400 logit_bias":      bad(func(a *generate.Request) { a.LogitBias = map[int32]float32{1 << 30: 1} }),
		"400 tool_choice":     bad(func(a *generate.Request) { a.Calls = generate.CallRequired }),
		"400 response_format": bad(func(a *generate.Request) { a.Grammar = grammar.Regexp("(") }),
		"400 messages":        bad(func(a *generate.Request) { a.Messages = user(strings.Repeat("word ", 9000)) }),
		"400 prompt":          {IDs: []int32{1 << 30}},
	} {
		_, err := service.Start(t.Context(), a)
		var e *generate.Error
		if !errors.As(err, &e) || fmt.Sprintf("%d %s", e.Status, e.Param) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		kind   generate.Kind
	}{
		{engine.ErrBusy, http.StatusTooManyRequests, generate.Busy},
		{engine.ErrClosed, http.StatusServiceUnavailable, generate.Unavailable},
		{fmt.Errorf("%w: x", engine.ErrBroken), http.StatusServiceUnavailable, generate.Unavailable},
		{fmt.Errorf("x: %w", engine.ErrTooLarge), http.StatusBadRequest, generate.TooLarge},
		{fmt.Errorf("chat: %w", &jinja.LimitError{What: "bytes", Max: 1}), http.StatusBadRequest, generate.TooLarge},
		{context.Canceled, 499, generate.Canceled},
		{errors.New("engine: it broke\ngoroutine 5"), http.StatusInternalServerError, generate.Internal},
		{generate.Invalid("a", "b"), http.StatusBadRequest, generate.BadRequest},
	} {
		e := generate.Wrap(c.err)
		if e.Status != c.status || e.Kind != c.kind || strings.Contains(e.Message, "goroutine") {
			t.Errorf("%v: %d %s %q", c.err, e.Status, e.Kind, e.Message)
		}
	}
}

// TestGrammarsAdmitNoOtherCalls generates a text that a grammar allows, and that is a call in a form that
// grammars of calls do not constrain: it stays text.
func TestGrammarsAdmitNoOtherCalls(t *testing.T) {
	m, done, err := service.Library.Use(t.Context(), generatetest.Caller)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	prompt, err := m.ChatPrompt(t.Context(), foretoken.Conversation{Messages: user("Hi."), Tools: tools(t), Variables: map[string]any{"enable_thinking": false}})
	if err != nil {
		t.Fatal(err)
	}
	const text = "<function=clock>\n</function>"
	answer, err := m.Generate(t.Context(), foretoken.Request{Prompt: prompt, Grammar: grammar.Literal(text)})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range answer.Pieces() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if answer.Content() != text || len(answer.ToolCalls) != 0 {
		t.Errorf("content %q, %d calls", answer.Content(), len(answer.ToolCalls))
	}
}

// TestTemplateErrorsOfARequestAreTheClients has a conversation that a template cannot render, and
// variables of reserved names. A template that cannot be read is an error of the server.
func TestTemplateErrorsOfARequestAreTheClients(t *testing.T) {
	parts, err := chat.DecodeMessages([]byte(`[{"role": "user", "content": [{"type": "text", "text": "x"}]}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		request     generate.Request
		param, says string
	}{
		{generate.Request{Model: generatetest.Lines, Messages: parts}, "messages", "cannot render the conversation: jinja: line 6: "},
		{generate.Request{Messages: user("x"), Variables: map[string]any{"messages": 1}}, "chat_template_kwargs.messages", "reserved"},
		{generate.Request{Messages: user("x"), Variables: map[string]any{"tools": 1}}, "chat_template_kwargs.tools", "reserved"},
		{generate.Request{Messages: user("x"), Variables: map[string]any{"add_generation_prompt": false}}, "chat_template_kwargs.add_generation_prompt", "reserved"},
	} {
		_, err := service.Start(t.Context(), &c.request)
		if e := generate.Wrap(err); err == nil || e.Status != http.StatusBadRequest || e.Kind != generate.BadRequest || e.Param != c.param || !strings.Contains(e.Message, c.says) {
			t.Errorf("%v is %d %s about %q, want 400 about %q that says %q", err, e.Status, e.Kind, e.Param, c.param, c.says)
		}
	}
	_, err = dialogue.NewTemplate("{% if %}")
	if e := generate.Wrap(err); e.Status != http.StatusInternalServerError {
		t.Errorf("a broken template is %d: %v", e.Status, err)
	}
}

func TestArrangePutsSystemsFirst(t *testing.T) {
	m := func(role, text string) chat.Message { return chat.Message{Role: role, Content: chat.Text(text)} }
	for name, c := range map[string]struct{ in, want []chat.Message }{
		"none":      {[]chat.Message{m("user", "a")}, []chat.Message{m("user", "a")}},
		"in place":  {[]chat.Message{m("system", "s"), m("user", "a")}, []chat.Message{m("system", "s"), m("user", "a")}},
		"late":      {[]chat.Message{m("user", "a"), m("system", "s")}, []chat.Message{m("system", "s"), m("user", "a")}},
		"several":   {[]chat.Message{m("system", "s"), m("user", "a"), m("developer", "d")}, []chat.Message{m("system", "s\n\nd"), m("user", "a")}},
		"developer": {[]chat.Message{m("developer", "d"), m("user", "a")}, []chat.Message{m("system", "d"), m("user", "a")}},
	} {
		got := generate.Arrange(c.in)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

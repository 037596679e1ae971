package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/engine"
	"github.com/foretoken/foretoken/server/turn"
	"github.com/foretoken/foretoken/server/turn/turntest"
)

var host *turn.Host

func TestMain(m *testing.M) {
	h, done, err := turntest.Open()
	if err != nil {
		panic(err)
	}
	host = h
	code := m.Run()
	if err := done(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// tools are two, one of which takes an argument.
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
func play(t *testing.T, a *turn.Ask) *turn.Turn {
	t.Helper()
	run, err := host.Start(t.Context(), a)
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

// TestCallsAreHeldToTheirSchemas demands calls in every way there is.
func TestCallsAreHeldToTheirSchemas(t *testing.T) {
	for seed := range uint64(3) {
		for _, c := range []struct {
			name  string
			ask   turn.Ask
			check func(calls []chat.ToolCall) bool
		}{
			{"required", turn.Ask{Calls: turn.CallRequired}, func(calls []chat.ToolCall) bool { return len(calls) == 1 }},
			{"several", turn.Ask{Calls: turn.CallRequired, Parallel: true, MaxTokens: 300}, func(calls []chat.ToolCall) bool { return len(calls) >= 1 }},
			{"named", turn.Ask{Calls: turn.CallNamed, Named: "weather"}, func(calls []chat.ToolCall) bool {
				return len(calls) == 1 && calls[0].Name == "weather"
			}},
			{"none", turn.Ask{Calls: turn.CallNone, MaxTokens: 20}, func(calls []chat.ToolCall) bool { return len(calls) == 0 }},
		} {
			a := c.ask
			a.Model, a.Messages, a.Tools, a.LogProbs, a.Seed = turntest.Thinker, user("What is the weather?"), tools(t), -1, &seed
			off := false
			a.Thinking = &off
			if a.MaxTokens == 0 {
				a.MaxTokens = 200
			}
			run := play(t, &a)
			answer := run.Answers[0]
			if !c.check(answer.ToolCalls) && answer.Finish != foretoken.FinishLength {
				t.Errorf("%s, seed %d: %q gives %d calls", c.name, seed, answer.Text(), len(answer.ToolCalls))
			}
			for _, call := range answer.ToolCalls {
				var args struct{ City string }
				if err := json.Unmarshal([]byte(call.ArgumentsJSON()), &args); err != nil || call.Name == "weather" && args.City != "Paris" && args.City != "Rome" {
					t.Errorf("%s: %s(%s): %v", c.name, call.Name, call.ArgumentsJSON(), err)
				}
			}
			if len(answer.ToolCalls) > 0 && answer.Finish != foretoken.FinishToolCalls && c.name != "several" {
				t.Errorf("%s: finish %q after calls", c.name, answer.Finish)
			}
		}
	}
}

// TestChoicesAreSeededOneByOne has several answers at once, each the one that its seed gives
// alone.
func TestChoicesAreSeededOneByOne(t *testing.T) {
	first := uint64(40)
	temperature := 0.9
	ask := func(seed uint64, n int) *turn.Ask {
		a := &turn.Ask{Messages: user("Tell me a story."), MaxTokens: 24, LogProbs: -1, Choices: n}
		a.Seed, a.Temperature = &seed, &temperature
		return a
	}
	several := play(t, ask(first, 3))
	var texts []string
	for i, answer := range several.Answers {
		alone := play(t, ask(first+uint64(i), 1))
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

func TestBadAsksAreRefused(t *testing.T) {
	bad := func(f func(*turn.Ask)) *turn.Ask {
		a := &turn.Ask{Messages: user("Hi."), LogProbs: -1}
		f(a)
		return a
	}
	ten, minus := 10.0, -1
	for want, a := range map[string]*turn.Ask{
		"404 model":           bad(func(a *turn.Ask) { a.Model = "nobody" }),
		"400 n":               bad(func(a *turn.Ask) { a.Choices = 99 }),
		"400 top_p":           bad(func(a *turn.Ask) { a.TopP = &ten }),
		"400 top_k":           bad(func(a *turn.Ask) { a.TopK = &minus }),
		"400 logit_bias":      bad(func(a *turn.Ask) { a.LogitBias = map[int32]float32{1 << 30: 1} }),
		"400 tool_choice":     bad(func(a *turn.Ask) { a.Calls = turn.CallRequired }),
		"400 response_format": bad(func(a *turn.Ask) { a.Form = turn.Expression("(") }),
		"400 messages":        bad(func(a *turn.Ask) { a.Messages = user(strings.Repeat("word ", 9000)) }),
		"400 prompt":          {IDs: []int32{1 << 30}, LogProbs: -1},
		"400 mtp_depth":       bad(func(a *turn.Ask) { d := 9; a.Depth = &d }),
	} {
		_, err := host.Start(t.Context(), a)
		var e *turn.Error
		if !errors.As(err, &e) || fmt.Sprintf("%d %s", e.Status, e.Param) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		kind   turn.Kind
	}{
		{engine.ErrBusy, http.StatusTooManyRequests, turn.Busy},
		{engine.ErrClosed, http.StatusServiceUnavailable, turn.Unavailable},
		{fmt.Errorf("x: %w", engine.ErrTooLarge), http.StatusBadRequest, turn.TooLarge},
		{context.Canceled, 499, turn.Cancelled},
		{errors.New("engine: it broke\ngoroutine 5"), http.StatusInternalServerError, turn.Internal},
		{turn.Invalid("a", "b"), http.StatusBadRequest, turn.BadRequest},
	} {
		e := turn.Wrap(c.err)
		if e.Status != c.status || e.Kind != c.kind || strings.Contains(e.Message, "goroutine") {
			t.Errorf("%v: %d %s %q", c.err, e.Status, e.Kind, e.Message)
		}
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
		got := turn.Arrange(c.in)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

package ollama

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	const hi = `"messages": [{"role": "user", "content": "Hi"}]`
	generatetest.Tolerate(t, site.URL, Register, service, []generatetest.Tolerated{
		{"/api/chat", `{"logprobs": true, ` + hi + `}`, "logprobs", "logprobs: log-probabilities are not supported here: use /v1/chat/completions"},
		{"/api/chat", `{"options": {"temprature": 1, "num_predict": 1}, ` + hi + `}`, "options.temprature", "options.temprature: this field is not supported"},
		{"/api/chat", `{"options": {"mirostat": 2, "num_predict": 1}, ` + hi + `}`, "options.mirostat", "options.mirostat: this sampling option is not supported: set it to"},
		{"/api/chat", `{"wat": 0, "options": {"num_predict": 1}, ` + hi + `}`, "wat", "wat: this field is not supported"},
		{"/api/chat", `{"stream": false, "options": {"num_predict": 1}, "messages": [{"role": "user", "content": "Hi", "mood": 1}, {"role": "user", "content": "Ho", "mood": 1}]}`, "messages[].mood", "messages[0].mood: this field is not supported"},
		{"/api/generate", `{"prompt": "a", "wat": 0, "options": {"num_predict": 1}}`, "wat", "wat: this field is not supported"},
		{"/api/show", `{"model": "tiny", "wat": 0}`, "wat", "wat: this field is not supported"},
	})
}

// A call that the limit of tokens cuts off is neither a call nor text. The protocol cannot require
// a call, so the run is started without it.
func TestCallsThatAreCutOffLeaveNothing(t *testing.T) {
	tools, err := chat.DecodeTools([]byte(`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	off := false
	for n := 1; n < 20; n += 3 {
		for _, streams := range []bool{false, true} {
			q := &request{chat: true, stream: streams, Request: generate.Request{
				Model: "thinker", Messages: []chat.Message{{Role: "user", Content: chat.Text("Go.")}}, Tools: tools,
				Calls: generate.CallRequired, Thinking: &off,
			}}
			q.MaxTokens = n
			started, err := service.Start(t.Context(), &q.Request)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			if streams {
				err = q.lines(w, started, time.Now(), 0)
			} else {
				var answer any
				answer, err = q.whole(started, time.Now(), 0)
				body.JSON(w, 200, answer)
			}
			started.Close()
			text := w.Body.String()
			if err != nil || !strings.Contains(text, `"done_reason":`) {
				t.Fatalf("%d tokens: %v: %s", n, err, text)
			}
			said := strings.ReplaceAll(text, `"content":""`, "")
			if strings.Contains(text, `"done_reason":"length"`) && (strings.Contains(said, `"content"`) || strings.Contains(text, "tool_calls")) {
				t.Error(fmt.Sprintf("%d tokens, stream %v: ", n, streams), text)
			}
		}
	}
}

package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// begin is a request that creates a thread.
const begin = `{"model": "thinker", "max_tokens": 8, "seed": 7, "thinking": {"type": "disabled"}, "thread": {"type": "create"},
	"system": "Be kind.", ` + weather + `, "messages": [{"role": "user", "content": "My name is Bob."}]}`

// continued is a request that continues the thread of a message.
func continued(id, messages string) string {
	return fmt.Sprintf(`{"model": "thinker", "max_tokens": 8, "seed": 7, "thinking": {"type": "disabled"}, "thread": {"type": "continue", "previous_message_id": %q}, "messages": [%s]}`, id, messages)
}

// TestThreadsAreTheWholeConversation continues threads, streamed or not, and sends the same conversations
// as a whole: both have the same prompt and the same answer.
func TestThreadsAreTheWholeConversation(t *testing.T) {
	for _, say := range []func(string) *message{
		func(request string) *message { return ask(t, request) },
		func(request string) *message { return &listen(t, request).message },
	} {
		first := say(begin)
		content := filetest.Encode(t, first.Content)
		const name = `{"role": "user", "content": "What is my name?"}`
		second := say(continued(first.ID, name))
		whole := say(strings.Replace(strings.Replace(begin, `."}]}`, `."}, {"role": "assistant", "content": `+string(content)+`}, `+name+`]}`, 1), `"thread": {"type": "create"},`, "", 1))
		if got, want := second.Usage.Input+second.Usage.CacheRead, whole.Usage.Input+whole.Usage.CacheRead; got != want {
			t.Errorf("the prompt has %d tokens, want %d", got, want)
		}
		if got, want := text(second), text(whole); got != want || second.ID == first.ID {
			t.Errorf("the answer %s is %q, want %q", second.ID, got, want)
		}
		third := say(continued(second.ID, name))
		if more := third.Usage.Input + third.Usage.CacheRead; more <= whole.Usage.Input+whole.Usage.CacheRead {
			t.Errorf("the third prompt has %d tokens", more)
		}
	}
}

func text(m *message) string {
	var b strings.Builder
	for _, block := range m.Content {
		if block.Text != nil {
			b.WriteString(*block.Text)
		}
	}
	return b.String()
}

// TestThreadsHaveResultsOfTheirCalls answers a call of a thread, whose tools are sent once.
func TestThreadsHaveResultsOfTheirCalls(t *testing.T) {
	m := ask(t, strings.NewReplacer(`"max_tokens": 8`, `"max_tokens": 200, "tool_choice": {"type": "any", "disable_parallel_tool_use": true}`).Replace(begin))
	use := m.Content[len(m.Content)-1]
	if use.Type != "tool_use" {
		t.Fatalf("the answer ends with %s", use.Type)
	}
	result := `{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "` + use.ID + `", "content": "sunny"}]}`
	again := strings.Replace(continued(m.ID, result), "{", `{"tool_choice": {"type": "tool", "name": "weather"}, `, 1)
	if next := ask(t, strings.Replace(again, `"max_tokens": 8`, `"max_tokens": 200`, 1)); *next.StopReason != "tool_use" {
		t.Errorf("it ends with %s", *next.StopReason)
	}
}

// TestThreadsThatAreNotThere has the code that makes Anthropic's client send the whole conversation
// again: for a thread of another tenant, one that was continued already, and one that never was.
func TestThreadsThatAreNotThere(t *testing.T) {
	mux := http.NewServeMux()
	caller := generate.Caller{Strict: true}
	Register(body.On(mux, func(http.ResponseWriter) generate.Caller { return caller }), service)
	post := func(tenant, request string) (int, string) {
		caller.Tenant = tenant
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(request))
		mux.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const hi = `{"role": "user", "content": "Hi."}`
	create := func() string {
		status, text := post("a", begin)
		var m message
		if err := json.Unmarshal([]byte(text), &m); err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v: %s", status, err, text)
		}
		return m.ID
	}
	gone := func(tenant, id string) {
		t.Helper()
		status, text := post(tenant, continued(id, hi))
		if status != http.StatusNotFound || !strings.Contains(text, `"type":"not_found_error"`) || !strings.Contains(text, `"details":{"error_code":"thread_not_found"}`) {
			t.Errorf("status %d: %s", status, text)
		}
	}
	id := create()
	gone("b", id)
	gone("", id)
	gone("a", "msg_0")
	if status, text := post("a", continued(id, hi)); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
	gone("a", id)
	id = create()
	for request, says := range map[string]string{
		continued(id, ""): "messages: there are no messages",
		strings.Replace(continued(id, hi), "{", `{"system": "s", `, 1):                   "system: a thread keeps",
		strings.Replace(continued(id, hi), "{", `{"tools": [], `, 1):                     "tools: a thread keeps",
		strings.Replace(begin, `"create"`, `"fork"`, 1):                                  "thread.type",
		strings.Replace(begin, `{"type": "create"}`, `{}`, 1):                            "thread.type: this field is missing",
		strings.Replace(begin, `{"type": "create"}`, `5`, 1):                             "want an object",
		strings.Replace(continued(id, hi), `, "previous_message_id": "`+id+`"`, ``, 1):   "thread.previous_message_id: this field is missing",
		strings.Replace(continued(id, `{"role": "robot"}`), "{", `{"metadata": {}, `, 1): "messages[2].role",
	} {
		if status, text := post("a", request); status != http.StatusBadRequest || !strings.Contains(text, says) || strings.Contains(text, "details") {
			t.Errorf("%s: status %d, want 400 that says %q: %s", request, status, says, text)
		}
	}
	if status, text := post("a", continued(id, hi)); status != http.StatusOK { // errors do not end a thread
		t.Errorf("status %d: %s", status, text)
	}
}

// TestThreadsAreBounded fills the store.
func TestThreadsAreBounded(t *testing.T) {
	s := newThreads()
	put := func(id string, size int, previous string) {
		s.put("o", id, &thread{messages: make([]byte, size)}, previous)
	}
	put("large", maxThread+1, "")
	for i := range 5 {
		put(fmt.Sprint(i), maxThread, "")
	}
	for id, kept := range map[string]bool{"large": false, "0": false, "1": true, "4": true} {
		if got := s.Get("o", id) != nil; got != kept {
			t.Errorf("%s is kept: %v", id, got)
		}
	}
	put("next", 7, "1")
	if n, ids, size := s.Len(); s.Get("o", "1") != nil || s.Get("o", "next") == nil || size != 3*maxThread+7 || n != 4 || ids != 4 {
		t.Errorf("%d bytes in %d threads", size, n)
	}
	for i := range maxThreads {
		put(fmt.Sprint("n", i), 1, "")
	}
	if n, ids, size := s.Len(); n != maxThreads || ids != maxThreads || size != maxThreads {
		t.Errorf("%d bytes in %d threads", size, n)
	}
}

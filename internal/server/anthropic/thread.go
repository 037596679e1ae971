package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// The limits of threads, as JSON. A thread beyond maxThread is not kept.
const (
	maxThreads     = 4096
	maxThread      = 32 << 20
	maxThreadBytes = 128 << 20
)

// errNoThread is wrapped by the error for a thread that is not there. Clients then send the whole
// conversation again.
var errNoThread = errors.New("no such thread")

// thread is a conversation that a client continues by the id of its last answer.
type thread struct {
	system, tools []byte // of the request that began it; nil: none
	messages      []byte // elements of an array, with commas between them
}

// add appends an element to the messages.
func (t *thread) add(message []byte) {
	if len(t.messages) > 0 {
		t.messages = append(t.messages, ',')
	}
	t.messages = append(t.messages, message...)
}

// threads are the most recently continued threads, by the ids of their last answers.
type threads struct{ *body.Recent[thread] }

func newThreads() threads {
	return threads{body.NewRecent(maxThreads, maxThreadBytes, func(t *thread, n int) int { return n * t.size() })}
}

func (t *thread) size() int { return len(t.system) + len(t.tools) + len(t.messages) }

// put adds a thread in place of the one with the id previous, which it continues.
func (s threads) put(owner, id string, t *thread, previous string) {
	s.Remove(owner, previous)
	if t.size() <= maxThread {
		s.Put(owner, t, id)
	}
}

// read reads a request. One that continues a thread is read as the request for the whole
// conversation that it stands for; previous is then the id of the answer that it continues.
func (h *handler) read(w http.ResponseWriter, r *http.Request, c generate.Caller) (v *body.Value, previous string) {
	v = body.Read(w, r).Strict(c.Strict)
	at := v.Field("thread")
	added := elements(v.Field("messages"))
	if !at.IsObject() || at.Field("type").Text() != "continue" || len(added) == 0 {
		return v, "" // decode reports the error
	}
	id := at.Field("previous_message_id").Required()
	for _, name := range []string{"system", "tools"} {
		if f := v.Field(name); !f.Absent() {
			f.Fault("a thread keeps that of the request that created it: leave it out, or send the whole conversation with thread type create")
			return v, ""
		}
	}
	previous = id.Text()
	t := h.threads.Get(c.Tenant, previous)
	if t == nil {
		id.Fail(&generate.Error{
			Status: http.StatusNotFound, Kind: generate.NotFound, Param: id.Path(), Err: errNoThread,
			Message: "there is no thread with this last message: send the whole conversation with thread type create",
		})
		return v, ""
	}
	// The last of several fields with one name counts.
	whole := bytes.Clone(v.Raw()[:len(v.Raw())-1])
	whole = append(whole, `,"thread":{"type":"create"},"messages":[`...)
	whole = append(append(append(whole, t.messages...), ','), added...)
	whole = append(whole, ']')
	if t.system != nil {
		whole = append(append(whole, `,"system":`...), t.system...)
	}
	if t.tools != nil {
		whole = append(append(whole, `,"tools":`...), t.tools...)
	}
	r.Body = body.Held(append(whole, '}'))
	return body.Read(w, r).Strict(c.Strict), previous
}

// elements is the text between the brackets of an array, nil if it is empty or not an array.
func elements(v *body.Value) []byte {
	if !v.IsList() {
		return nil
	}
	return bytes.TrimSpace(v.Raw()[1 : len(v.Raw())-1])
}

// newThread is the conversation of a request that is to be kept.
func newThread(v *body.Value) *thread {
	t := &thread{system: bytes.Clone(v.Field("system").Raw()), tools: bytes.Clone(v.Field("tools").Raw())}
	t.add(elements(v.Field("messages")))
	return t
}

// keep keeps a conversation and its answer, if that is wanted.
func (h *handler) keep(q *request, m *message) {
	t := q.thread
	if t == nil {
		return
	}
	if len(m.Content) > 0 {
		answer, err := json.Marshal(struct {
			Role    string   `json:"role"`
			Content []*block `json:"content"`
		}{m.Role, m.Content})
		if err != nil {
			return // our own types have JSON
		}
		t.add(answer)
	}
	h.threads.put(q.Caller.Tenant, m.ID, t, q.previous)
}

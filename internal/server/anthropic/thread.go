package anthropic

import (
	"bytes"
	"container/list"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

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
	id            string // of the last answer
	owner         string // the tenant; to others it does not exist
	system, tools []byte // of the request that began it; nil: none
	messages      []byte // elements of an array, with commas between them
}

func (t *thread) size() int { return len(t.system) + len(t.tools) + len(t.messages) }

// add appends an element to the messages.
func (t *thread) add(message []byte) {
	if len(t.messages) > 0 {
		t.messages = append(t.messages, ',')
	}
	t.messages = append(t.messages, message...)
}

// threads keeps the most recently continued threads in memory. It may be used from several
// goroutines.
type threads struct {
	mu     sync.Mutex // protects what follows
	byID   map[string]*list.Element
	recent *list.List // of *thread, the last used in front
	bytes  int
}

func newThreads() *threads { return &threads{byID: map[string]*list.Element{}, recent: list.New()} }

// put adds a thread in place of the one with the id previous, which it continues, and drops the
// least recently used until all fit.
func (s *threads) put(t *thread, previous string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(t.owner, previous); e != nil {
		s.drop(e)
	}
	if t.size() > maxThread {
		return
	}
	s.byID[t.id] = s.recent.PushFront(t)
	s.bytes += t.size()
	for s.bytes > maxThreadBytes || s.recent.Len() > maxThreads {
		s.drop(s.recent.Back())
	}
}

// get returns a thread of owner, or nil.
func (s *threads) get(owner, id string) *thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(owner, id)
	if e == nil {
		return nil
	}
	s.recent.MoveToFront(e)
	return e.Value.(*thread)
}

// find is the place of a thread of owner, or nil; mu is held.
func (s *threads) find(owner, id string) *list.Element {
	if e := s.byID[id]; e != nil && e.Value.(*thread).owner == owner {
		return e
	}
	return nil
}

func (s *threads) drop(e *list.Element) {
	t := s.recent.Remove(e).(*thread)
	delete(s.byID, t.id)
	s.bytes -= t.size()
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
	t := h.threads.get(c.Tenant, previous)
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
	t.id, t.owner = m.ID, q.Caller.Tenant
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
	h.threads.put(t, q.previous)
}

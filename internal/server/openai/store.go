package openai

import (
	"container/list"
	"encoding/json"
	"sync"

	"github.com/foretoken/foretoken/chat"
)

// The limits of a store. A conversation counts with all of its text in each of its responses, so
// the memory in use is less; its images, which are most of it, count once.
const (
	maxStored      = 4096
	maxStoredBytes = 128 << 20
)

// stored is a response that can be retrieved and continued.
type stored struct {
	id       string
	owner    string         // the tenant; to others it does not exist
	body     []byte         // its JSON
	items    []string       // ids of its output
	messages []chat.Message // of the conversation, its answer included
	size     int            // bytes, without images
}

// store keeps the most recently used responses in memory. It may be used from several
// goroutines.
type store struct {
	mu     sync.Mutex               // protects what follows
	byID   map[string]*list.Element // of *stored
	byItem map[string]*list.Element // of *stored, by an id of its output
	recent *list.List               // the last used in front
	media  map[*chat.Media]int      // how many responses hold an image or video
	bytes  int
}

func newStore() *store {
	return &store{byID: map[string]*list.Element{}, byItem: map[string]*list.Element{}, recent: list.New(), media: map[*chat.Media]int{}}
}

// put adds a response and drops the least recently used until all fit. One that is too large by
// itself is not stored.
func (s *store) put(r *stored) {
	r.size = len(r.body)
	for _, m := range r.messages {
		r.size += sizeOf(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.recent.PushFront(r)
	s.byID[r.id] = e
	for _, id := range r.items {
		s.byItem[id] = e
	}
	s.bytes += r.size
	s.hold(r, 1)
	for s.bytes > maxStoredBytes || s.recent.Len() > maxStored {
		s.drop(s.recent.Back())
	}
}

// get returns a response of owner, or nil.
func (s *store) get(owner, id string) *stored { return s.use(s.byID, owner, id) }

// item is the JSON of an item of a response's output of owner, or nil.
func (s *store) item(owner, id string) json.RawMessage {
	found := s.use(s.byItem, owner, id)
	if found == nil {
		return nil
	}
	var r struct{ Output []json.RawMessage }
	_ = json.Unmarshal(found.body, &r) // it is valid
	for _, raw := range r.Output {
		var one struct{ ID string }
		if json.Unmarshal(raw, &one) == nil && one.ID == id {
			return raw
		}
	}
	return nil
}

// use returns a response of owner in one of the maps, or nil.
func (s *store) use(by map[string]*list.Element, owner, id string) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := find(by, owner, id)
	if e == nil {
		return nil
	}
	s.recent.MoveToFront(e)
	return e.Value.(*stored)
}

// find is the place of a response of owner in one of the maps, or nil; mu is held.
func find(by map[string]*list.Element, owner, id string) *list.Element {
	e := by[id]
	if e == nil || e.Value.(*stored).owner != owner {
		return nil
	}
	return e
}

// remove deletes a response, and reports whether there was one of that owner.
func (s *store) remove(owner, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := find(s.byID, owner, id)
	if e != nil {
		s.drop(e)
	}
	return e != nil
}

func (s *store) drop(e *list.Element) {
	r := s.recent.Remove(e).(*stored)
	delete(s.byID, r.id)
	for _, id := range r.items {
		delete(s.byItem, id)
	}
	s.bytes -= r.size
	s.hold(r, -1)
}

// hold counts the images of a response that is added, with n = 1, or dropped, with n = -1; mu is
// held.
func (s *store) hold(r *stored, n int) {
	for _, message := range r.messages {
		for _, m := range message.Content.Media() {
			before := s.media[m]
			if s.media[m] += n; s.media[m] == 0 {
				delete(s.media, m)
			}
			if before == 0 || s.media[m] == 0 {
				for _, file := range m.Files {
					s.bytes += n * len(file)
				}
			}
		}
	}
}

// sizeOf estimates the bytes of a message.
func sizeOf(m chat.Message) int {
	const fields = 256
	n := fields + m.Content.Bytes() + len(m.ToolCallID)
	if m.ReasoningContent != nil {
		n += len(*m.ReasoningContent)
	}
	for _, c := range m.ToolCalls {
		n += fields + len(c.ID) + len(c.Name) + 4*len(c.Arguments.JSON()) // a tree of values takes more than its text
	}
	return n
}

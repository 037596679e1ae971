package openai

import (
	"encoding/json"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
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
	body     []byte         // its JSON
	items    []string       // ids of its output
	messages []chat.Message // of the conversation, its answer included
}

// store keeps the most recently used responses, by their ids and those of their items.
type store struct {
	*body.Recent[stored]
	media map[*chat.Media]int // how many responses hold an image or video; the lock of Recent is held
}

func newStore() *store {
	s := &store{media: map[*chat.Media]int{}}
	s.Recent = body.NewRecent(maxStored, maxStoredBytes, s.size)
	return s
}

// put adds a response.
func (s *store) put(owner string, r *stored) { s.Put(owner, r, append([]string{r.id}, r.items...)...) }

// get returns a response of owner, or nil.
func (s *store) get(owner, id string) *stored {
	if r := s.Get(owner, id); r != nil && r.id == id {
		return r
	}
	return nil
}

// item is the JSON of an item of a response's output of owner, or nil.
func (s *store) item(owner, id string) json.RawMessage {
	found := s.Get(owner, id)
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

// remove deletes a response, and reports whether there was one of that owner.
func (s *store) remove(owner, id string) bool { return s.get(owner, id) != nil && s.Remove(owner, id) }

// size returns the bytes that a response adds, with n = 1, or removes, with n = -1. Images count with the
// first response that holds them.
func (s *store) size(r *stored, n int) int {
	sum := n * len(r.body)
	for _, message := range r.messages {
		sum += n * sizeOf(message)
		for _, m := range message.Content.Media() {
			before := s.media[m]
			if s.media[m] += n; s.media[m] == 0 {
				delete(s.media, m)
			}
			if before == 0 || s.media[m] == 0 {
				for _, file := range m.Files {
					sum += n * len(file)
				}
			}
		}
	}
	return sum
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

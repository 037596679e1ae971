package state

import (
	"fmt"

	"github.com/foretoken/foretoken/backend"
)

// Snapshot is a copy of a state at one moment. It counts against the pool's budget until
// it is closed.
type Snapshot struct {
	s *State
}

// Save copies the state. Guesses not kept are not part of it.
func (s *State) Save() (*Snapshot, error) {
	c, err := s.pool.Open(s.layout)
	if err != nil {
		return nil, err
	}
	if err := c.copyFrom(s); err != nil {
		c.Close()
		return nil, err
	}
	return &Snapshot{c}, nil
}

// Load makes s remember what the snapshot does, in place of what it did. After an error s
// must be closed.
func (s *State) Load(from *Snapshot) error {
	if s.layout != from.s.layout {
		return fmt.Errorf("state: snapshot of another layout")
	}
	s.len = 0
	return s.copyFrom(from.s)
}

// Len is the number of tokens the snapshot remembers.
func (s *Snapshot) Len() int { return s.s.len }

// Close gives the snapshot's memory back.
func (s *Snapshot) Close() { s.s.Close() }

func (s *State) copyFrom(from *State) error {
	if err := s.Reserve(from.len); err != nil {
		return err
	}
	b := s.pool.b
	for i := 0; i*backend.PageTokens < from.len && s.layout.KVLayers > 0; i++ {
		b.Copy(s.pages[i], from.pages[i])
	}
	for i := range from.delta {
		dst, src := tensors(&s.delta[i]), tensors(&from.delta[i])
		for j := range src {
			b.Copy(*dst[j], *src[j])
		}
	}
	s.len, s.kept, s.open = from.len, from.kept, 0
	return nil
}

// Package state is what a network remembers of a sequence: pages of keys and values, the
// tails of convolutions, the matrices of the delta rule. Taking back guesses is part of it
// for every kind of memory. It knows nothing of what the numbers mean.
package state

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// State is what one network remembers of one sequence. It belongs to the pool that opened
// it, and like the pool it is used by one goroutine at a time.
type State struct {
	pool   *Pool
	layout Layout
	len    int // tokens remembered
	open   int // guesses of the last call that Keep may still accept
	kept   int // accepted guesses of the last call

	pages     []*Block
	tensors   []backend.Tensor // of pages
	recurrent *Block
	delta     []backend.Recurrent // in recurrent
}

// Layout is what the state was opened with.
func (s *State) Layout() Layout { return s.layout }

// Len is the number of tokens remembered. Guesses count once they are kept.
func (s *State) Len() int { return s.len }

// Reserve makes room for n more tokens, guesses included: pages that are not there yet are
// added, and a page that others hold too is copied before it is written to. After ErrFull
// the state remembers what it did, and the caller may wait for memory or close a state.
func (s *State) Reserve(n int) error {
	need := s.layout.pages(s.len + n)
	for i := s.len / backend.PageTokens; i < min(need, len(s.pages)); i++ {
		if err := s.own(i); err != nil {
			return err
		}
	}
	had := len(s.pages)
	for len(s.pages) < need {
		p, err := s.pool.block(s.layout.page())
		if err != nil {
			for _, p := range s.pages[had:] {
				p.Release()
			}
			s.pages, s.tensors = s.pages[:had], s.tensors[:had]
			return err
		}
		s.pages, s.tensors = append(s.pages, p), append(s.tensors, p.t)
	}
	return nil
}

// own makes page i one that nobody else holds.
func (s *State) own(i int) error {
	p := s.pages[i]
	if p.holders == 1 {
		return nil
	}
	c, err := s.pool.block(p.shape)
	if err != nil {
		if p.holders == 1 {
			return nil // what was released to make room was the other hold
		}
		return err
	}
	s.pool.b.Copy(c.t, p.t)
	p.Release()
	s.pages[i], s.tensors[i] = c, c.t
	return nil
}

// Seq describes a call that feeds n tokens, the last guesses of which may be taken back,
// as rows [first, first+n). Room for them must have been reserved. The call must be
// followed by Fed.
func (s *State) Seq(first, n, drafts int) backend.Seq {
	if drafts < 0 || drafts > n || drafts > s.layout.MaxDrafts {
		panic(fmt.Sprintf("state: %d guesses among %d tokens, at most %d", drafts, n, s.layout.MaxDrafts))
	}
	if room := len(s.pages) * backend.PageTokens; s.layout.KVLayers > 0 && s.len+n > room {
		panic(fmt.Sprintf("state: %d tokens after %d in room for %d", n, s.len, room))
	}
	for i := s.len / backend.PageTokens; i < s.layout.pages(s.len+n); i++ {
		if s.pages[i].holders > 1 {
			panic(fmt.Sprintf("state: %d tokens after %d would be written to a page that others hold", n, s.len))
		}
	}
	return backend.Seq{
		First: first, N: n, Pos: s.len, Drafts: drafts, Accepted: s.kept,
		Pages: s.tensors, Delta: s.delta,
	}
}

// Fed records that the call described by Seq was made. Its guesses are not remembered
// until Keep accepts them; a further call without Keep drops them.
func (s *State) Fed(n, drafts int) {
	s.len += n - drafts
	s.open, s.kept = drafts, 0
}

// Keep accepts the first n guesses of the last call. The rest is forgotten. The result is
// as if only those had been fed, bit for bit.
func (s *State) Commit(n int) {
	if n < 0 || n > s.open {
		panic(fmt.Sprintf("state: Keep(%d) of %d guesses", n, s.open))
	}
	s.len += n
	s.kept, s.open = n, 0
}

// Truncate forgets all but the first n tokens. Only networks without recurrent layers can
// forget tokens that are not guesses of the last call.
func (s *State) Truncate(n int) {
	if n < 0 || n > s.len || s.layout.DeltaLayers > 0 {
		panic(fmt.Sprintf("state: Truncate(%d) of %d tokens with %d recurrent layers", n, s.len, s.layout.DeltaLayers))
	}
	s.len, s.open, s.kept = n, 0, 0
}

// Close gives the memory back. The state must not be used after it.
func (s *State) Close() {
	if s.pool == nil {
		return
	}
	for _, p := range s.pages {
		p.Release()
	}
	s.recurrent.Release()
	s.pool.count(func(x *Stats) { x.States-- })
	*s = State{}
}

// Package state is the state of a model for a sequence: that of each layer, in
// pages that are added as the sequence grows, and in a recurrent memory of fixed size. Rollback
// of rejected drafts is part of it for every kind of layer. It does not know the meaning of the
// numbers.
package state

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// State is the state of one model for one sequence. It belongs to the pool that opened it, and
// like the pool it is used by one goroutine at a time.
type State struct {
	pool   *Pool
	layout Layout
	page   shape // of each page
	drafts int   // maximum number in one call
	len    int   // tokens fed and committed
	open   int   // drafts of the last call that Commit may still accept
	kept   int   // accepted drafts of the last call

	pages     []*Block
	tensors   []backend.Tensor // of pages
	recurrent *Block
	delta     []backend.Recurrent // in recurrent

	steps     []step     // where positions differ from slots, ascending; none in a text
	given     [][3]int32 // positions of the call that Seq described; nil: text
	positions [][3]int32 // memory for those that it is not given
}

// Layout is what the state was opened with.
func (s *State) Layout() Layout { return s.layout }

// Len is the number of tokens fed. Drafts count once they are committed.
func (s *State) Len() int { return s.len }

// Reserve makes space for n more tokens, drafts included: missing pages are
// added, and a page with other references is copied before it is written to. After ErrFull
// the state is unchanged, and the caller may wait for memory or close a state.
func (s *State) Reserve(n int) error {
	need := s.page.pages(s.len + n)
	for i := s.len / backend.PageTokens; i < min(need, len(s.pages)); i++ {
		if err := s.own(i); err != nil {
			return err
		}
	}
	had := len(s.pages)
	for len(s.pages) < need {
		p, err := s.pool.newPage(s.page, s.layout)
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

// Drafts is the maximum number of drafts in one call.
func (s *State) Drafts() int { return s.drafts }

// Deepen makes space for DeepDrafts of the layout in one call, for good: the replay memory of
// recurrent layers grows with the number of drafts. Drafts that were not committed are dropped.
// After ErrFull the state is unchanged.
func (s *State) Deepen() error {
	deep := s.layout.DeepDrafts()
	if s.drafts >= deep {
		return nil
	}
	if s.delta != nil {
		full := s.layout.full(deep)
		b, err := s.pool.layered(full.shape(), s.layout, full.cols)
		if err != nil {
			return err
		}
		from, old := s.needed(), s.recurrent
		s.recurrent, s.delta, s.drafts = b, full.carve(b.t), deep
		copyRecurrent(s.pool.b, s.needed(), from)
		old.Release()
	}
	s.drafts, s.open = deep, 0
	return nil
}

// own makes page i one without other references.
func (s *State) own(i int) error {
	p := s.pages[i]
	if p.refs == 1 {
		return nil
	}
	c, err := s.pool.newPage(p.shape, s.layout)
	if err != nil {
		if p.refs == 1 {
			return nil // the other reference was released to make space
		}
		return err
	}
	s.pool.b.Copy(c.t, p.t)
	p.Release()
	s.pages[i], s.tensors[i] = c, c.t
	return nil
}

// Seq describes a call that feeds n tokens as rows [first, first+n), of which the last drafts
// may be rolled back. Space for them must have been reserved. positions are the tokens', nil for
// text that goes on at Next; they must not change before Fed, which must follow.
func (s *State) Seq(first, n, drafts int, positions [][3]int32) backend.Seq {
	if drafts < 0 || drafts > n || drafts > s.drafts {
		panic(fmt.Sprintf("state: %d drafts in %d tokens, at most %d", drafts, n, s.drafts))
	}
	if positions != nil && len(positions) != n {
		panic(fmt.Sprintf("state: %d positions of %d tokens", len(positions), n))
	}
	need := s.page.pages(s.len + n)
	if need > len(s.pages) {
		panic(fmt.Sprintf("state: %d tokens after %d in %d pages", n, s.len, len(s.pages)))
	}
	for i := s.len / backend.PageTokens; i < need; i++ {
		if s.pages[i].refs > 1 {
			panic(fmt.Sprintf("state: %d tokens after %d would be written to a shared page", n, s.len))
		}
	}
	return backend.Seq{
		First: first, N: n, Pos: s.len, Positions: s.place(n, positions), Drafts: drafts, Accepted: s.kept,
		Pages: s.tensors, Delta: s.delta,
	}
}

// Fed records that the call described by Seq was made. Its drafts do not count until Commit
// accepts them; a further call without Commit drops them.
func (s *State) Fed(n, drafts int) {
	s.advance()
	s.len += n - drafts
	s.open, s.kept = drafts, 0
}

// Commit accepts the first n drafts of the last call and rolls the rest back. The result is as
// if only those had been fed, bit for bit.
func (s *State) Commit(n int) {
	if n < 0 || n > s.open {
		panic(fmt.Sprintf("state: Commit(%d) of %d drafts", n, s.open))
	}
	s.len += n
	s.kept, s.open = n, 0
}

// Truncate forgets all but the first n tokens, which the layout must allow.
func (s *State) Truncate(n int) {
	if n < 0 || n > s.len || len(s.delta) > 0 {
		panic(fmt.Sprintf("state: Truncate(%d) of %d tokens with %d recurrent layers", n, s.len, len(s.delta)))
	}
	s.len, s.open, s.kept = n, 0, 0
}

// Close releases the memory. The state must not be used after it.
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

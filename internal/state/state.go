// Package state is the state of a model for a sequence: that of each layer, in
// pages that are added as the sequence grows, and in a recurrent memory of fixed size. Rollback
// of rejected drafts is part of it for every kind of layer. It does not know the meaning of the
// numbers.
package state

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// State is the state of one model for one sequence. It belongs to the pool that opened it, and
// like the pool it is used by one goroutine at a time.
type State struct {
	pool   *Pool
	layout Layout
	drafts int // maximum number in one call
	len    int // tokens fed and committed
	open   int // drafts of the last call that Commit may still accept
	kept   int // accepted drafts of the last call

	tables    []table          // in the order of Layout.Places
	windows   []backend.Window // tables[1:] in Seq
	recurrent *Block
	delta     []backend.Recurrent // in recurrent

	steps     []step     // where positions differ from slots, ascending; none in a text
	given     [][3]int32 // positions of the call that Seq described; nil: text
	positions [][3]int32 // memory for those that it is not given
}

// table is the pages of all layers with one window, or of all layers without.
type table struct {
	shape   shape
	first   int // released pages, which come before the others
	had     int // end before Reserve
	pages   []*Block
	tensors []backend.Tensor // of pages
}

// add appends a page, whose reference the table owns.
func (t *table) add(p *Block) { t.pages, t.tensors = append(t.pages, p), append(t.tensors, p.t) }

// cut releases all pages but [from, to).
func (t *table) cut(from, to int) {
	from, to = from-t.first, to-t.first
	if from == 0 && to == len(t.pages) {
		return
	}
	for i, p := range t.pages {
		if i < from || i >= to {
			p.Release()
		}
	}
	t.pages, t.tensors, t.first = slices.Delete(t.pages[:to], 0, from), slices.Delete(t.tensors[:to], 0, from), t.first+from
}

// end is the page behind the last.
func (t *table) end() int { return t.first + len(t.pages) }

// truncated is the number of tokens that a state without recurrent memory can forget at any time, if they were fed since Load. Pages
// are released that many tokens late.
const truncated = 16

// Layout is what the state was opened with.
func (s *State) Layout() Layout { return s.layout }

// Len is the number of tokens fed. Drafts count once they are committed.
func (s *State) Len() int { return s.len }

// Reserve makes space for n more tokens, drafts included: pages behind windows are released, missing pages are
// added, and a page with other references is copied before it is written to. After ErrFull
// the state is unchanged, and the caller may wait for memory or close a state.
func (s *State) Reserve(n int) error {
	for i := range s.tables {
		t := &s.tables[i]
		t.cut(max(t.first, t.shape.first(s.len-truncated)), t.end())
		t.had = t.end()
	}
	for i := range s.tables {
		if err := s.extend(&s.tables[i], n); err != nil {
			for i := range s.tables {
				t := &s.tables[i]
				t.cut(t.first, t.had)
			}
			return err
		}
	}
	return nil
}

// extend makes space in a table for n more tokens.
func (s *State) extend(t *table, n int) error {
	need := t.shape.pages(s.len + n)
	for p := s.len / backend.PageTokens; p < min(need, t.end()); p++ {
		if err := s.own(t, p); err != nil {
			return err
		}
	}
	for t.end() < need {
		p, err := s.pool.newPage(t.shape, s.layout)
		if err != nil {
			return err
		}
		t.add(p)
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

// own makes a page one without other references.
func (s *State) own(t *table, page int) error {
	i := page - t.first
	p := t.pages[i]
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
	t.pages[i], t.tensors[i] = c, c.t
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
	for i := range s.tables {
		t := &s.tables[i]
		need := t.shape.pages(s.len + n)
		if need > t.end() {
			panic(fmt.Sprintf("state: %d tokens after %d in %d pages", n, s.len, t.end()))
		}
		for p := s.len / backend.PageTokens; p < need; p++ {
			if t.pages[p-t.first].refs > 1 {
				panic(fmt.Sprintf("state: %d tokens after %d would be written to a shared page", n, s.len))
			}
		}
		if i > 0 {
			s.windows[i-1] = backend.Window{First: t.first, Pages: t.tensors}
		}
	}
	return backend.Seq{
		First: first, N: n, Pos: s.len, Positions: s.place(n, positions), Drafts: drafts, Accepted: s.kept,
		Pages: s.tables[0].tensors, Windows: s.windows, Delta: s.delta,
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

// Repeat adds n tokens as if they were fed, after a page of them at least: each page is a copy of the one before it. It is for measurements,
// which need a long context but no text.
func (s *State) Repeat(n int) error {
	for m := 0; n > 0; n -= m {
		m = min(n, RoundTokens)
		if err := s.Reserve(m); err != nil {
			return err
		}
		s.Seq(0, m, 0, nil)
		for i := range s.tables {
			t := &s.tables[i]
			for p := pagesOf(s.len); p < t.shape.pages(s.len+m); p++ {
				s.pool.b.Copy(t.tensors[p-t.first], t.tensors[p-1-t.first])
			}
		}
		s.Fed(m, 0)
	}
	return nil
}

// CanTruncate reports whether the state can forget all but the first n tokens, which are not drafts of the last call. With recurrent
// memory it cannot. With windows it can if the pages that the token behind n sees are not released.
func (s *State) CanTruncate(n int) bool {
	return n >= 0 && n <= s.len && len(s.delta) == 0 && !slices.ContainsFunc(s.tables, func(t table) bool { return t.first > t.shape.first(n) })
}

// Truncate forgets all but the first n tokens, which CanTruncate must allow.
func (s *State) Truncate(n int) {
	if !s.CanTruncate(n) {
		panic(fmt.Sprintf("state: Truncate(%d) of %d tokens with %d recurrent layers and %d windows", n, s.len, len(s.delta), len(s.windows)))
	}
	s.len, s.open, s.kept = n, 0, 0
}

// Close releases the memory. The state must not be used after it.
func (s *State) Close() {
	if s.pool == nil {
		return
	}
	for i := range s.tables {
		t := &s.tables[i]
		t.cut(t.end(), t.end())
	}
	s.recurrent.Release()
	s.pool.count(func(x *Stats) { x.States-- })
	*s = State{}
}

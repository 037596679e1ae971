// Package state is what a network remembers of a sequence: pages of keys and values, the
// tails of convolutions, the matrices of the delta rule. Taking back guesses is part of it
// for every kind of memory. It knows nothing of what the numbers mean.
package state

import (
	"fmt"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/dtype"
)

// Layout is the memory a network needs per sequence. The zero Layout needs none.
type Layout struct {
	KVLayers, KVHeads, HeadDim int        // attention
	KVType                     dtype.Type // of keys and values: F32 or F16

	DeltaLayers                            int // recurrent layers
	KeyHeads, ValueHeads, KeyDim, ValueDim int
	Kernel                                 int // taps of the convolution

	MaxGuesses int // most guesses of one call
}

// pageRows is the shape of a page: PageTokens positions of every layer, HeadDim wide.
func (l *Layout) pageRows() int { return l.KVLayers * 2 * l.KVHeads * backend.PageTokens }

// PageBytes is the memory of backend.PageTokens positions.
func (l *Layout) PageBytes() int64 {
	return int64(l.pageRows()) * int64(l.HeadDim) * int64(l.KVType.Size())
}

// RecurrentBytes is the memory a sequence needs whatever its length.
func (l *Layout) RecurrentBytes() int64 {
	n := int64(0)
	for _, s := range l.recurrentShapes() {
		n += 4 * int64(s[0]) * int64(s[1])
	}
	return n * int64(l.DeltaLayers)
}

// recurrentShapes are the shapes of the tensors of one backend.Recurrent, in the order of
// its fields.
func (l *Layout) recurrentShapes() [5][2]int {
	keys, values := l.KeyHeads*l.KeyDim, l.ValueHeads*l.ValueDim
	return [5][2]int{
		{l.ValueHeads * l.KeyDim, l.ValueDim},
		{l.Kernel - 1 + l.MaxGuesses, 2*keys + values},
		{l.MaxGuesses, keys},
		{l.MaxGuesses, values},
		{l.MaxGuesses, l.ValueHeads},
	}
}

// State is what one network remembers of one sequence. It belongs to the pool that opened
// it, and like the pool it is used by one goroutine at a time.
type State struct {
	pool   *Pool
	layout Layout
	len    int // tokens remembered
	open   int // guesses of the last call that Keep may still accept
	kept   int // accepted guesses of the last call
	pages  []backend.Tensor
	delta  []backend.Recurrent
}

// Len is the number of tokens remembered. Guesses count once they are kept.
func (s *State) Len() int { return s.len }

// Reserve makes room for n more tokens, guesses included. After ErrFull the state is as it
// was, and the caller may wait for memory or close a state.
func (s *State) Reserve(n int) error {
	if s.layout.KVLayers == 0 {
		return nil
	}
	need := (s.len + n + backend.PageTokens - 1) / backend.PageTokens
	had := len(s.pages)
	for len(s.pages) < need {
		p, err := s.pool.page(&s.layout)
		if err != nil {
			for _, p := range s.pages[had:] {
				s.pool.putPage(&s.layout, p)
			}
			s.pages = s.pages[:had]
			return err
		}
		s.pages = append(s.pages, p)
	}
	return nil
}

// Seq describes a call that feeds n tokens, the last guesses of which may be taken back,
// as rows [first, first+n). Room for them must have been reserved. The call must be
// followed by Fed.
func (s *State) Seq(first, n, guesses int) backend.Seq {
	if guesses < 0 || guesses > n || guesses > s.layout.MaxGuesses {
		panic(fmt.Sprintf("state: %d guesses among %d tokens, at most %d", guesses, n, s.layout.MaxGuesses))
	}
	if room := len(s.pages) * backend.PageTokens; s.layout.KVLayers > 0 && s.len+n > room {
		panic(fmt.Sprintf("state: %d tokens after %d in room for %d", n, s.len, room))
	}
	return backend.Seq{
		First: first, N: n, Pos: s.len, Guesses: guesses, Kept: s.kept,
		Pages: s.pages, Delta: s.delta,
	}
}

// Fed records that the call described by Seq was made. Its guesses are not remembered
// until Keep accepts them; a further call without Keep drops them.
func (s *State) Fed(n, guesses int) {
	s.len += n - guesses
	s.open, s.kept = guesses, 0
}

// Keep accepts the first n guesses of the last call. The rest is forgotten. The result is
// as if only those had been fed, bit for bit.
func (s *State) Keep(n int) {
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
		s.pool.putPage(&s.layout, p)
	}
	if s.delta != nil {
		s.pool.putRecurrent(&s.layout, s.delta)
	}
	*s = State{}
}

package qwen35

import (
	"slices"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/spec"
)

// The output matrix is most of what a guess costs a small model with a large vocabulary, and
// most of its rows are tokens that the text will not use. So guesses are drawn from a
// shortlist: the frequent tokens, which byte-level BPE gives the lowest ids because it merged
// them first, and those that this text has used. What the target draws from is always the
// whole vocabulary; a token that is not on the list costs a guess, never the text.

// shortlistLength is the number of frequent tokens on the shortlist of a vocabulary, given
// what the user wants: 0 for our choice, -1 for all. Our choice, until a self-test has made
// a better one, is a quarter, where the trained tiny model loses a hundredth of its tokens
// per round and a guess costs a third less, and not more than a language needs.
func shortlistLength(vocab, want int) int {
	const smallest, most = 1 << 12, 1 << 15
	switch {
	case want < 0 || want >= vocab || want == 0 && vocab < smallest:
		return vocab
	case want > 0:
		return want
	}
	return min(vocab/4, most)
}

// shortlistSizes are the lengths worth trying: the whole vocabulary, halved until so little
// of it is left that more of a guess is spent elsewhere.
func shortlistSizes(vocab int) []int {
	const least = 1 << 10
	sizes := []int{vocab}
	for n := vocab / 2; n >= least; n /= 2 {
		sizes = append(sizes, n)
	}
	slices.Reverse(sizes)
	return sizes
}

// shortlist is the blocks of output rows that guesses of a batch are drawn from.
type shortlist struct {
	frequent int // tokens that are always on it
	vocab    int
	all      bool // of the vocabulary are on it
	blocks   []int32
}

// seen are the blocks of a text's tokens beyond the frequent ones, ascending.
type seen struct {
	upTo   int // tokens of the text taken in
	blocks []int32
}

// mostSeen bounds the blocks that one text adds.
const mostSeen = 512

// of is the blocks for a batch, nil for all. The list is valid until the next call. It is
// all where a draft's distribution is asked for: under the ratio rule the distribution shapes
// the text, which must not depend on what the others of the batch have said.
func (s *shortlist) of(batch []spec.Run) []int32 {
	s.all = s.frequent >= s.vocab || slices.ContainsFunc(batch, func(r spec.Run) bool { return r.Dists })
	if s.all {
		return nil
	}
	first := (s.frequent + backend.RowBlock - 1) / backend.RowBlock
	s.blocks = s.blocks[:0]
	for i := range first {
		s.blocks = append(s.blocks, int32(i))
	}
	for _, r := range batch {
		if r.Depth == 0 {
			continue
		}
		x, ok := (*r.Notes).(*seen)
		if !ok {
			x = &seen{}
			*r.Notes = x
		}
		x.learn(r.Text, int32(first))
		s.blocks = append(s.blocks, x.blocks...)
	}
	if rest := s.blocks[first:]; len(batch) > 1 {
		slices.Sort(rest)
		s.blocks = s.blocks[:first+len(slices.Compact(rest))]
	}
	return s.blocks
}

// size is how many tokens are on the list that of has made last.
func (s *shortlist) size() int {
	if s.all {
		return s.vocab
	}
	return min(len(s.blocks)*backend.RowBlock, s.vocab)
}

// learn takes in the new tokens of a text.
func (x *seen) learn(text []int32, first int32) {
	if len(text) < x.upTo {
		*x = seen{}
	}
	for _, id := range text[x.upTo:] {
		b := id / backend.RowBlock
		if at, found := slices.BinarySearch(x.blocks, b); b >= first && !found && len(x.blocks) < mostSeen {
			x.blocks = slices.Insert(x.blocks, at, b)
		}
	}
	x.upTo = len(text)
}

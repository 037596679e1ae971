package spec

import (
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/sampling"
)

// The output matrix is most of the cost of a draft token of a small model with a large
// vocabulary, and most of its rows are tokens that the text will not use. So draft tokens are
// drawn from a draft vocabulary: the frequent tokens, which byte-level BPE gives the lowest
// ids because it merged them first, and those that this text has used. The target always draws
// from the whole vocabulary; a token outside of the draft vocabulary costs a
// draft token, never the text.

// draftVocabSize is the number of frequent tokens in the draft vocabulary for the
// option want: 0 for auto, -1 for all. Auto, until a self-test has found better, is a quarter,
// where the trained tiny model loses a hundredth of its tokens per round and a draft token
// costs a third less, and not more than a language needs.
func draftVocabSize(vocab, want int) int {
	const smallest, largest = 1 << 12, 1 << 15
	switch {
	case want < 0 || want >= vocab || want == 0 && vocab < smallest:
		return vocab
	case want > 0:
		return want
	}
	return min(vocab/4, largest)
}

// draftVocabSizes are the sizes worth trying: the whole vocabulary, halved until so little of
// it is left that most of a draft token's cost is elsewhere.
func draftVocabSizes(vocab int) []int {
	const least = 1 << 10
	sizes := []int{vocab}
	for n := vocab / 2; n >= least; n /= 2 {
		sizes = append(sizes, n)
	}
	slices.Reverse(sizes)
	return sizes
}

// DraftVocab is the blocks of output rows that drafts of a batch are drawn from.
type DraftVocab struct {
	frequent int // tokens that are always in it
	vocab    int
	control  []int32 // blocks of tokens that open and close parts of a text: always in it, too
	all      bool    // the whole vocabulary is in it
	first    int     // blocks of the frequent tokens
	sizes    []int   // to choose from
	blocks   []int32 // of all texts of the batch, ascending
}

// NewDraftVocab returns the draft vocabulary of a vocabulary. want is the number of frequent tokens: 0 for auto (fastest), -1
// for all. The tokens of control are always in it.
func NewDraftVocab(vocab, want int, control []int32) DraftVocab {
	s := DraftVocab{frequent: draftVocabSize(vocab, want), vocab: vocab}
	if want == 0 {
		s.sizes = draftVocabSizes(vocab)
	}
	for _, id := range control {
		if id >= 0 && int(id) < vocab {
			s.control = append(s.control, id/backend.RowBlock)
		}
	}
	slices.Sort(s.control)
	s.control = slices.Compact(s.control)
	// A file may have thousands of control tokens. Those added last are the chat's.
	s.control = s.control[max(len(s.control)-maxControl, 0):]
	return s
}

// VocabSizes implements VocabLimiter.
func (s *DraftVocab) VocabSizes() []int { return s.sizes }

// Frequent is the number of frequent tokens.
func (s *DraftVocab) Frequent() int { return s.frequent }

// LimitVocab implements VocabLimiter.
func (s *DraftVocab) LimitVocab(size int) { s.frequent = size }

// After is the draft vocabulary after a text, with the given number of frequent tokens: blocks of backend.RowBlock tokens,
// ascending; nil for all. The result of Of is unchanged.
func (s *DraftVocab) After(frequent int, text []int32) []int32 {
	var host any
	vocab := DraftVocab{frequent: frequent, vocab: s.vocab, control: s.control}
	return vocab.Of([]Run{{Text: text, Depth: 1, HostState: &host}})
}

// seen are the blocks of a text's tokens beyond the frequent ones, ascending, with the place
// in the text where each was used last. A negative id is not a token.
type seen struct {
	upTo   int // tokens of the text taken in
	blocks []int32
	last   []int32
}

// Bounds of the blocks that one text adds, and how many of them are of control tokens.
const (
	maxSeen    = 512
	maxControl = 32
)

// lasting is the place of a block that is never evicted.
const lasting = math.MaxInt32

// Of is the blocks for a batch, nil for all. The list is valid until the next call. It is
// all if a draft's distribution is needed: under the ratio rule the distribution affects
// the text, which must not depend on other texts of the batch.
func (s *DraftVocab) Of(batch []Run) []int32 {
	s.all = s.frequent >= s.vocab || slices.ContainsFunc(batch, func(r Run) bool { return r.Dists })
	if s.all {
		return nil
	}
	s.first = (s.frequent + backend.RowBlock - 1) / backend.RowBlock
	s.blocks = s.blocks[:0]
	for i := range s.first {
		s.blocks = append(s.blocks, int32(i))
	}
	for _, r := range batch {
		if r.Depth == 0 {
			continue
		}
		x, ok := (*r.HostState).(*seen)
		if !ok {
			x = &seen{}
			*r.HostState = x
		}
		x.update(r.Text, int32(s.first), s.control)
		s.blocks = append(s.blocks, x.blocks...)
	}
	slices.Sort(s.blocks[s.first:])
	s.blocks = slices.Compact(s.blocks)
	return s.blocks
}

// off is the logits of a block that is not in it.
var off = func() (x [backend.RowBlock]float32) {
	for i := range x {
		x[i] = float32(math.Inf(-1))
	}
	return x
}()

// Foreign is the expected maximum number of the highest logits of a row that Confine drops: tokens
// that only other texts use are seldom likely in this one. If there are more, the whole row
// is read.
func (s *DraftVocab) Foreign(r *Run) int {
	if s.all {
		return 0
	}
	return min(len(s.blocks)-s.first-len((*r.HostState).(*seen).blocks), 16)
}

// Confine removes the tokens from a row of logits that are there for other sequences of the
// batch, and returns how many are left: otherwise the draft tokens of a text would reveal
// words of other texts.
func (s *DraftVocab) Confine(row *sampling.Row, r *Run) int {
	switch {
	case s.Foreign(r) == 0:
	case row.All != nil:
		s.blank(row.All, (*r.HostState).(*seen).blocks)
	default:
		s.drop(row, (*r.HostState).(*seen).blocks)
	}
	return s.Size(r)
}

// Own is the blocks from first on that a run draws from. first is 0 if the other runs of the batch
// have no blocks that this one does not have.
func (s *DraftVocab) Own(r *Run) (first int, blocks []int32) {
	if s.Foreign(r) == 0 {
		return 0, nil
	}
	return s.first, (*r.HostState).(*seen).blocks
}

// Size is how many tokens a run draws from.
func (s *DraftVocab) Size(r *Run) int {
	if s.all {
		return s.vocab
	}
	return min((s.first+len((*r.HostState).(*seen).blocks))*backend.RowBlock, s.vocab)
}

// blank confines a whole row to own blocks.
func (s *DraftVocab) blank(row []float32, own []int32) {
	for _, b := range s.blocks[s.first:] {
		if len(own) > 0 && own[0] == b {
			own = own[1:]
			continue
		}
		copy(row[int(b)*backend.RowBlock:], off[:])
	}
}

// drop confines the known part of a row to own blocks.
func (s *DraftVocab) drop(row *sampling.Row, own []int32) {
	in := func(id int32) bool {
		b := id / backend.RowBlock
		if int(b) < s.first {
			return true
		}
		_, found := slices.BinarySearch(own, b)
		return found
	}
	kept := 0
	for i, id := range row.IDs {
		if in(id) {
			row.IDs[kept], row.Logits[kept] = id, row.Logits[i]
			kept++
		}
	}
	row.IDs, row.Logits = row.IDs[:kept], row.Logits[:kept]
	for i, id := range row.Also {
		if !in(id) {
			row.AlsoLogits[i] = off[0]
		}
	}
}

// update adds the new tokens of a text. If there are too many, the most recently used stay:
// current names, and closing tokens.
func (x *seen) update(text []int32, first int32, control []int32) {
	if len(text) < x.upTo {
		*x = seen{}
	}
	skip := latest(text[x.upTo:], first)
	if x.upTo == 0 || skip > 0 {
		x.blocks, x.last = x.blocks[:0], x.last[:0]
		for _, b := range control {
			if b >= first {
				x.blocks, x.last = append(x.blocks, b), append(x.last, lasting)
			}
		}
	}
	for i := x.upTo + skip; i < len(text); i++ {
		b := text[i] / backend.RowBlock
		if text[i] < 0 || b < first { // no token, or a frequent one
			continue
		}
		at, found := slices.BinarySearch(x.blocks, b)
		if !found {
			at = x.insert(at, b)
		}
		if x.last[at] != lasting {
			x.last[at] = int32(i)
		}
	}
	x.upTo = len(text)
}

// latest is the index of the first token such that the rest use as many blocks as are kept; 0 if
// they do not. It saves adding blocks of a long prompt that would be evicted again.
func latest(tokens []int32, first int32) int {
	if len(tokens) < maxSeen {
		return 0
	}
	used := map[int32]bool{}
	for i, id := range slices.Backward(tokens) {
		if b := id / backend.RowBlock; id >= 0 && b >= first {
			used[b] = true
		}
		if len(used) == maxSeen {
			return i
		}
	}
	return 0
}

// insert adds a block, which belongs at a place, at the cost of the one that was used the
// longest ago if there are too many. It returns the block's place.
func (x *seen) insert(at int, b int32) int {
	if len(x.blocks) == maxSeen {
		oldest := slices.Index(x.last, slices.Min(x.last))
		x.blocks, x.last = slices.Delete(x.blocks, oldest, oldest+1), slices.Delete(x.last, oldest, oldest+1)
		if oldest < at {
			at--
		}
	}
	x.blocks, x.last = slices.Insert(x.blocks, at, b), slices.Insert(x.last, at, 0)
	return at
}

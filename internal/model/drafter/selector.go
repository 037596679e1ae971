package drafter

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// selector is DFlash2's choice among candidates: it adds to the logit of a candidate the product of three vectors, of the
// token before, of the row and of the candidate.
type selector struct {
	project backend.Weight // [rank, width]
	before  backend.Weight // [vocab, rank]
	after   backend.Weight // [vocab, rank]

	memory backend.Tensor // embedded candidates, for the largest call so far
	ids    []int32        // that are embedded as tokens before
	// Of the running call, on the host, with rank numbers each.
	rows, lefts, rights []float32
	prev                []int // of each row: where its tokens before are among lefts
}

// selecting is a Block of DFlash2.
type selecting struct{ *Block }

// Candidates implements model.Selector.
func (d *selecting) Candidates() int { return d.cfg.top }

// Select implements model.Selector. Last tokens of texts are embedded first, then all candidates.
func (d *selecting) Select(candidates []int32) error {
	s, b := &d.selector, d.Backend
	texts := d.steps[1]
	s.ids, s.prev = s.ids[:0], s.prev[:0]
	for i := range d.spans {
		s.ids = append(s.ids, d.spans[i].Tokens[0])
	}
	s.ids = append(s.ids, candidates...)
	for j := range len(d.steps) - 1 {
		for i := range d.steps[j+1] - d.steps[j] {
			at := i
			if j > 0 {
				at = texts + (d.steps[j-1]+i)*d.cfg.top
			}
			s.prev = append(s.prev, at)
		}
	}
	n := len(s.ids) + len(candidates)
	if s.memory.Rows < n {
		s.free(b)
		var err error
		if s.memory, err = b.Alloc(dtype.F32, n, d.cfg.rank); err != nil {
			return err
		}
	}
	b.Embed(s.memory.RowRange(0, len(s.ids)), s.before, s.ids)
	b.Embed(s.memory.RowRange(len(s.ids), n), s.after, candidates)
	rows, err := b.Host(d.scored.RowRange(0, len(d.Want)))
	if err != nil {
		return err
	}
	s.rows = append(s.rows[:0], rows...)
	all, err := b.Host(s.memory.RowRange(0, n))
	if err != nil {
		return err
	}
	s.lefts = append(s.lefts[:0], all[:len(s.ids)*d.cfg.rank]...)
	s.rights = append(s.rights[:0], all[len(s.ids)*d.cfg.rank:]...)
	return nil
}

// Score implements model.Selector.
func (d *selecting) Score(row, c, before int) float32 {
	s, r := &d.selector, d.cfg.rank
	if row < d.steps[1] {
		before = 0
	}
	left, mid, right := s.lefts[(s.prev[row]+before)*r:][:r], s.rows[row*r:][:r], s.rights[(row*d.cfg.top+c)*r:][:r]
	sum := float32(0)
	for i, x := range left {
		sum += float32(float32(x*mid[i]) * right[i]) // rounded each: processors differ in what they fuse
	}
	return sum
}

// free gives the memory back.
func (s *selector) free(b backend.Backend) {
	b.Free(s.memory)
	s.memory = backend.Tensor{}
}

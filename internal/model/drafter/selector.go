package drafter

import (
	"errors"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// selector is DFlash2's choice among candidates: it adds to the logit of a candidate the product of three vectors, of the
// token before, of the row and of the candidate.
type selector struct {
	project backend.Weight // [rank, width]
	before  backend.Weight // [vocab, rank]
	after   backend.Weight // [vocab, rank]

	memory backend.Tensor // embedded tokens before and candidates, for the largest call so far
	listed backend.Tensor // candidates, then their scores, on a device that draws
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
	if err := fit(b, &s.memory, n, d.cfg.rank); err != nil {
		return err
	}
	b.Embed(s.memory.RowRange(0, len(s.ids)), s.before, s.ids, 0)
	b.Embed(s.memory.RowRange(len(s.ids), n), s.after, candidates, 0)
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

// Draw implements model.Block.
func (d *selecting) Draw(draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	if ok, err := d.drawing.Begin(d.Backend, draws); !ok || err != nil {
		return nil, ok, err
	}
	s, b, top := &d.selector, d.Backend, d.cfg.top
	device, texts, rows := b.(backend.Drawer), d.steps[1], len(d.Want)
	err = errors.Join(fit(b, &s.memory, texts+rows*top, d.cfg.rank), fit(b, &s.listed, 2*rows, top))
	if err != nil {
		return nil, true, err
	}
	ids, scores := s.listed.RowRange(0, rows), s.listed.RowRange(rows, 2*rows)
	left, right := s.memory.RowRange(0, texts), s.memory.RowRange(texts, texts+rows*top)
	d.drawing.Candidates(ids, scores, d.out.Logits)
	each := ids // a row of one number for each
	each.Rows, each.Cols, each.Stride = rows*top, 1, 1
	device.EmbedDrawn(right, s.after, each, 0)
	for j := range draws {
		from, to := d.steps[j], d.steps[j+1]
		before := left.RowRange(0, to-from)
		d.embedBefore(before, s.before, j)
		device.Score(scores.RowRange(from, to), before, d.scored.RowRange(from, to), right.RowRange(from*top, to*top))
		d.drawing.Draw(j, j+1, scores.RowRange(from, to), ids.RowRange(from, to))
	}
	drawn, err = d.drawing.Read()
	return drawn, true, err
}

// fit makes a tensor fit rows, whose contents are lost.
func fit(b backend.Backend, t *backend.Tensor, rows, cols int) (err error) {
	if t.Rows < rows {
		b.Free(*t)
		*t, err = b.Alloc(dtype.F32, rows, cols)
	}
	return err
}

// free gives the memory back.
func (s *selector) free(b backend.Backend) {
	b.Free(s.memory)
	b.Free(s.listed)
	s.memory, s.listed = backend.Tensor{}, backend.Tensor{}
}

package block

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

var _ spec.Rehearser = (*Drafter)(nil)

// manyRuns is up to how many runs blocks are rehearsed, all of one size.
const manyRuns = 8

// Rehearse implements spec.Rehearser: any number of new rows, and blocks of each size, after a text that adds blocks to the draft
// vocabulary and after one that does not.
func (d *Drafter) Rehearse(p *state.Pool, hidden backend.Tensor, usual, runs int) error {
	for n := min(runs*spec.Backlog, hidden.Rows); n > usual; n -= spec.Backlog {
		if err := d.rehearse(p, hidden.RowRange(0, n), 1, 0, nil); err != nil {
			return err
		}
	}
	for n := range usual {
		if err := d.rehearse(p, hidden.RowRange(0, n+1), 1, 0, nil); err != nil {
			return err
		}
	}
	for _, text := range [][]int32{{int32(d.logits.Vocab - 1)}, nil} {
		only := d.vocab.After(d.vocab.Frequent(), text)
		for n := min(runs, manyRuns); n > 0; n-- {
			for size := d.block.Drafts(); ; size = d.block.Size(size / 2) {
				if err := d.rehearse(p, hidden.RowRange(0, 1), n, size, only); err != nil {
					return err
				}
				if size == d.block.Size(1) {
					break
				}
			}
		}
	}
	return nil
}

// rehearse appends rows to n sequences and drafts a block of each if there is a size.
func (d *Drafter) rehearse(p *state.Pool, rows backend.Tensor, n, size int, only []int32) error {
	var spans, blocks []model.Span
	for range n {
		s, err := p.Open(d.Layout())
		if err != nil {
			return err
		}
		defer s.Close()
		spans = append(spans, model.Span{State: s, Hidden: rows})
		blocks = append(blocks, model.Span{State: s, Tokens: []int32{0}, Want: size})
	}
	if err := d.block.Append(spans); err != nil || size == 0 {
		return err
	}
	if _, err := d.block.Forward(blocks, only); err != nil {
		return err
	}
	draws := make([][]backend.Draw, size)
	for i := range draws {
		draws[i] = make([]backend.Draw, n)
	}
	_, _, err := d.block.Draw(draws)
	return err
}

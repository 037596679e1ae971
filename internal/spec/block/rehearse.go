package block

import (
	"cmp"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

var _ spec.Rehearser = (*Drafter)(nil)

// manyRuns is up to how many runs blocks are rehearsed, and manyBlocks is how many passes over them, if there are more.
const manyRuns, manyBlocks = 8, 128

// Rehearse implements spec.Rehearser: any number of new rows, and blocks of all sizes for each number of runs, after a text that adds
// blocks to the draft vocabulary and after one that does not. Runs of equal blocks come first.
func (d *Drafter) Rehearse(p *state.Pool, hidden backend.Tensor, usual, runs int) error {
	x := rehearsal{d: d, pool: p, hidden: hidden}
	for n := min(runs*spec.Backlog, hidden.Rows); n > usual; n -= spec.Backlog {
		x.call(n, nil, nil)
	}
	for n := range usual {
		x.call(n+1, nil, nil)
	}
	for _, text := range [][]int32{{int32(d.logits.Vocab - 1)}, nil} {
		only := d.vocab.After(d.vocab.Frequent(), text)
		x.seen = map[[2]int]bool{}
		for n := min(runs, manyRuns); n > 0; n-- {
			for size := d.block.Drafts(); ; size = d.block.Size(size / 2) {
				if x.call(1, slices.Repeat([]int{size}, n), only); size == d.block.Size(1) {
					break
				}
			}
		}
		for n := range min(runs, manyRuns) {
			x.blocks(nil, n+1, d.block.Drafts(), only)
		}
	}
	return x.err
}

// rehearsal makes calls whose drafts are not used.
type rehearsal struct {
	d      *Drafter
	pool   *state.Pool
	hidden backend.Tensor
	seen   map[[2]int]bool // blocks and drafts: passes with equal numbers of both share what is prepared
	err    error           // the first
}

// blocks drafts blocks of the given sizes and of n more, none larger than size.
func (x *rehearsal) blocks(sizes []int, n, size int, only []int32) {
	if n == 0 {
		x.call(1, sizes, only)
		return
	}
	for least := x.d.block.Size(1); len(x.seen) < manyBlocks; size = x.d.block.Size(size / 2) {
		if x.blocks(append(sizes, size), n-1, size, only); size == least {
			return
		}
	}
}

// call appends rows to a sequence for each size, and drafts a block of that size. Without sizes it appends rows to one.
func (x *rehearsal) call(rows int, sizes []int, only []int32) {
	if len(sizes) > 0 {
		drafts := 0
		for _, n := range sizes {
			drafts += n
		}
		key := [2]int{len(sizes), drafts}
		if x.seen[key] {
			return
		}
		x.seen[key] = true
	}
	var spans, blocks []model.Span
	var draws [][]backend.Draw
	for i := range max(len(sizes), 1) {
		s, err := x.pool.Open(x.d.Layout())
		if err != nil || x.err != nil {
			x.err = cmp.Or(x.err, err)
			return
		}
		defer s.Close()
		spans = append(spans, model.Span{State: s, Hidden: x.hidden.RowRange(0, rows)})
		if i < len(sizes) {
			blocks = append(blocks, model.Span{State: s, Tokens: []int32{0}, Want: sizes[i]})
			draws = slices.Grow(draws, sizes[0])[:sizes[0]]
			for j := range sizes[i] {
				draws[j] = append(draws[j], backend.Draw{})
			}
		}
	}
	if x.err = x.d.block.Append(spans); x.err != nil || len(blocks) == 0 {
		return
	}
	if _, x.err = x.d.block.Forward(blocks, only); x.err == nil {
		_, _, x.err = x.d.block.Draw(draws)
	}
}

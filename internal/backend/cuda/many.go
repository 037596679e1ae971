package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Blocks of the kernels for many rows.
const (
	manyOutputs = 4 // tiles
	manyRows    = 32
	manyStages  = 4 // groups that are under way
)

// halved reports whether products of many rows with w multiply halves.
func (w *weight) halved() bool { return w.tabled && w.Number == dtype.F8E4M3 }

// halvedBlock is how many bytes eight rows have as halves, in a block of 64 columns: halvedBlock of kernels/tensor.cuh.
const halvedBlock = strip * (2*tableCols + 4*tableCols/nanoGroup)

// halvedStrips is how many strips of rows there are as halves: for whole blocks of the kernels.
func halvedStrips(rows int) int {
	return (rows + 2*manyRows - 1) / (2 * manyRows) * (2 * manyRows / strip)
}

// halve adds rows as halves to an input of many rows, if w multiplies those.
func (b *Backend) halve(in *input, rows int, w *weight) {
	if !w.halved() || rows <= maxRelay || in.halves != 0 {
		return
	}
	const blocksAtOnce = 8
	strips, blocks := halvedStrips(rows), w.Layout.Groups
	in.halves = b.take(&b.codes, strips*blocks*halvedBlock)
	b.launch("plain.halve", grid{x: (blocks + blocksAtOnce - 1) / blocksAtOnce, y: strips, threads: 32 * blocksAtOnce},
		in.codes, in.stride, in.tails, in.tailRows, rows, blocks, in.halves)
}

// many launches a product of many rows with a weight in the layout for tensor cores.
func (b *Backend) many(list []product) {
	p := &list[0]
	l, forms := &p.w.Layout, p.w.forms()
	across, down := (p.tiles+manyOutputs-1)/manyOutputs, (p.rows+manyRows-1)/manyRows
	rows, strips, row := manyRows, 4, l.Group+p.w.tails() // of a block, of a warp; bytes of a row
	if p.w.halved() {
		row, p.in.codes, p.in.stride = halvedBlock/strip, p.in.halves, halvedStrips(p.rows)*halvedBlock
	}
	name := func() string { return fmt.Sprintf("%s.many_%d_%d_%d", forms.module, l.Bits, l.Group, strips) }
	shared := func() int { return manyStages * (manyOutputs*l.Block + rows*row) }
	if forms.tall && down%2 == 0 {
		rows, strips = 2*manyRows, 8 // weights are read for more rows
		blocks, atOnce := across*down/2, b.occupancy(name(), 64, shared())
		if p.w.tabled {
			blocks = min(blocks, atOnce) // faster from one full wave on, as measured on an H200
		}
		if !fills(blocks, atOnce) {
			rows, strips = manyRows, 4
		}
	}
	if forms.dense && strips == 4 && across*down < 6*b.info.Multiprocessors {
		strips = 2 // more warps, where blocks are too few to fill the device
	}
	b.launchAs(name(), p.sizes(), grid{
		x: (p.rows + rows - 1) / rows, y: across, threads: 64 * rows / (strip * strips), shared: shared(),
	}, p.param())
}

// fills reports whether the last wave of concurrent blocks is, with those before it, nearly full.
func fills(blocks, atOnce int) bool {
	waves := (blocks + atOnce - 1) / atOnce
	return 20*blocks >= 19*waves*atOnce
}

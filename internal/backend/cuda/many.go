package cuda

import "fmt"

// Blocks of the kernels for many rows.
const (
	manyOutputs = 4 // tiles
	manyRows    = 32
	manyStages  = 4 // groups that are under way
)

// many launches a product of many rows with a weight that lies for tensor cores.
func (b *Backend) many(p *product) {
	if p.w.super() {
		b.manySuper(p)
		return
	}
	l, forms := &p.w.Layout, p.w.forms()
	across, down := (p.tiles+manyOutputs-1)/manyOutputs, (p.rows+manyRows-1)/manyRows
	rows, strips := manyRows, 4 // of a block, of a warp
	name := func() string { return fmt.Sprintf("%s.many_%d_%d_%d", forms.module, l.Bits, l.Group, strips) }
	shared := func() int { return manyStages * (manyOutputs*l.Block + rows*(l.Group+p.w.tails())) }
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

// fills reports whether the last wave of blocks that run at once is, with those before it, nearly full.
func fills(blocks, atOnce int) bool {
	waves := (blocks + atOnce - 1) / atOnce
	return 20*blocks >= 19*waves*atOnce
}

//go:build !noasm

package kernel

import "unsafe"

//go:generate go run -C _gen ./integer

// integerTilesAVX512 is integerTiles. Of many rows with 8 bits, most go to the wide kernel.
func integerTilesAVX512(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	format := w.integerFormat()
	if format != integer8 || a.rows < 2*wideRows {
		integerStrips(integerAVX512[format][:], out, w, n, from, to, a, s)
		return
	}
	c := integerCall{&s.integer, out, w, n, a}
	c.open(s)
	rows, end := c.wide(integerWide8, from, to)
	c.strips(integerAVX512[format][:], rows, from, end, from)
	c.strips(integerAVX512[format][:], 0, end, to, from)
	*c.args = integerArgs{}
}

// integerTilesAVX2 is integerTiles.
func integerTilesAVX2(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerStrips(integerAVX2[w.integerFormat()][:], out, w, n, from, to, a, s)
}

// stripsAVX512 and stripsAVX2 are Set.strips.
func stripsAVX512(int, rounding) strips { return strips{height: len(integerAVX512[0])} }
func stripsAVX2(int, rounding) strips   { return strips{height: len(integerAVX2[0])} }

// integerTilesAMX is integerTiles. Rows that are laid out by fours, being few or in groups
// that do not fit tiles, go to AVX-512.
func integerTilesAMX(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	if !a.byRow {
		integerTilesAVX512(out, w, n, from, to, a, s)
		return
	}
	if w.groups == 0 || from == to {
		return
	}
	args, rows := &s.integer, a.OutRows()
	multiply := amxKernel(w, rows >= amxMany)
	args.set(w)
	args.setAMX(a, s)
	if w.per > 1 {
		args.setSuper(w, a, s)
	}
	args.format = w.integerFormat()
	args.outTile = rows * Tile * 4
	args.decoded = s.decoded()
	span := amxCodes / min(rows, amxRowsAtOnce) / w.group / w.per * w.per
	for g := 0; g < w.groups; g += span {
		args.groups, args.more = min(span, w.groups-g), min(g, 1)
		args.supers = args.groups / w.per
		for r := 0; r < rows; r += amxRowsAtOnce {
			args.strips = min(amxRowsAtOnce, rows-r) / a.height
			args.tiles = to - from
			args.weights = unsafe.Pointer(unsafe.SliceData(w.at(n, from, g)))
			args.acts = unsafe.Pointer(&a.strip(r)[g/w.per*args.actGroup])
			args.out = unsafe.Pointer(&out[r*Tile])
			multiply(args)
		}
	}
	*args = integerArgs{}
}

// amxKernel is the kernel for a weight, and for many strips, or few.
func amxKernel(w *Weight, many bool) func(*integerArgs) {
	signed := !w.biased() || w.zero != 0
	switch {
	case w.per > 1 && signed:
		return integerSuper
	case w.per > 1:
		return integerSuperLeast
	case signed && many:
		return integerManySigned
	case signed:
		return integerAMXSigned
	case many:
		return integerMany
	default:
		return integerAMX
	}
}

// What the AMX kernels work on at a time. Activations of amxRowsAtOnce rows, and amxCodes codes
// of them, stay in the second cache while tiles pass. In the first are amxPanel groups of two
// tiles, unpacked, the next as many, and the products of the former with two strips: with more
// groups the caches of a core whose other half works for somebody else are too small. The kernel
// for many strips has half of these slots for one tile, and a ring of four products.
const (
	amxRowsAtOnce = byRowAtOnce
	amxCodes      = 512 << 10
	amxPanel      = 2
	amxSlotBytes  = amxPanel * Tile * (128 + 2*4)      // of a tile
	amxProducts   = amxPanel * 2 * 2 * Tile * Tile * 4 // bytes
)

// setAMX fills in what depends on the rows.
func (args *integerArgs) setAMX(a *Activations, s *Scratch) {
	args.rows = a.height
	args.actRow, args.actGroup, args.actTail = a.group, a.stride(a.height), a.group*a.height
	args.actStrip = a.groups * args.actGroup
	args.slotTail = a.group * Tile
	args.slot = args.slotTail + 2*Tile*4
	args.panel = 2 * amxSlotBytes / args.slot
	s.tiles = aligned(s.tiles, 2*amxProducts+4*amxSlotBytes)
	products := unsafe.Pointer(&s.tiles[0])
	args.products = unsafe.Add(products, -int(uintptr(products))&(amxProducts-1))
	args.slots = unsafe.Add(args.products, amxProducts)
	width := min(a.group, 64)
	args.config = [64]byte{0: 1}
	for t := range 8 { // bytes of a row, rows
		args.config[16+2*t], args.config[48+t] = 64, byte(a.height)
	}
	for t := 4; t < 6; t++ { // activations
		args.config[16+2*t] = byte(width)
	}
	for t := 6; t < 8; t++ { // codes
		args.config[48+t] = byte(width / 4)
	}
}

// What the kernels for superblocks work on: products of two turns, scales of four superblocks, and planes
// of two.
const (
	superProducts = 2 * 4 * Tile * Tile * 4
	superScales   = 4 * 512
	superSlots    = 2 * 2 * Tile * 256
)

// setSuper fills in what superblocks need.
func (args *integerArgs) setSuper(w *Weight, a *Activations, s *Scratch) {
	s.tiles = aligned(s.tiles, 2*superProducts+superScales+superSlots)
	products := unsafe.Pointer(&s.tiles[0])
	args.products = unsafe.Add(products, -int(uintptr(products))&(superProducts-1))
	args.scaled = unsafe.Add(args.products, superProducts)
	args.slots = unsafe.Add(args.scaled, superScales)
	args.columns = a.group / 64
	if w.per == 8 {
		args.pairSkip = 8 * a.height
	}
	turns := (min(a.OutRows(), amxRowsAtOnce)/a.height + 1) / 2
	args.pace = min(4, (w.per+turns-1)/turns)
}

// stripsAMX is Set.strips. A few strips are all of one height, and no higher than
// the rows need.
func stripsAMX(rows int, r rounding) strips {
	least := amxRows
	if r.part == 32 {
		least = amxSuperRows
	}
	if rows < least || r.part == 0 && r.group > 128 || r.group&(r.group-1) != 0 {
		return stripsAVX512(rows, r)
	}
	height := 16
	if rows < amxLow {
		n := (rows + height - 1) / height
		height = (rows + n - 1) / n
	}
	return strips{height: height, byRow: true}
}

// amxRows is from how many rows on tiles are the faster way. Measured on a Xeon of the fifth
// generation, weights from memory, in parts of the time of AVX-512: 8 rows take 1.0 to 1.1, 9 rows
// 0.7 to 0.9, 16 rows 0.6 to 0.7, 32 rows 0.5. The kernels count on it: no strip has fewer.
const amxRows = 9

// amxSuperRows is the same for superblocks with groups of 32: unpacking takes longer there, and one strip
// does not make up for it. On one thread, weights from the caches, 9 to 16 rows take 0.9 to 1.2 of
// the time of AVX-512, 24 and 32 rows 0.6 to 0.8; with groups of 16 9 to 16 rows take 0.9 to 1.0, 24 and
// 32 rows 0.6.
const amxSuperRows = 17

// amxLow is from how many rows on strips are as high as they can be: padding is a small part.
const amxLow = 49

// amxMany is from how many rows on, all of them in whole strips, tiles and sums take turns group
// by group. At 128 rows and more that takes 0.95 of the time of the other way, and 0.7 to 0.85 while
// another guest has half of the core; at 64 rows with weights from memory 1.1 and 0.95.
const amxMany = amxLow

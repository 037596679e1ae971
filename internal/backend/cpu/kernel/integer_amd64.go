//go:build !noasm

package kernel

import "unsafe"

//go:generate go run -C _gen ./integer

// integerTilesAVX512 is integerTiles. For many rows with 8 bits, most go to the wide kernel.
func integerTilesAVX512(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	if w.grid() {
		gridStrips(gridAVX512[:], best512, out, w, n, from, to, a, s)
		return
	}
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
	integerPanels(&panelsAVX2, out, w, n, from, to, a, s)
}

// integerTilesVNNI is integerTiles.
func integerTilesVNNI(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerPanels(&panelsVNNI, out, w, n, from, to, a, s)
}

// stripsAVX512 is Set.strips. There are no kernels of five and seven rows: with weights of 4 and
// 8 bits from memory those of six and eight take at most 2.5 % longer.
func stripsAVX512(rows int, _ rounding) strips {
	s := strips{height: len(integerAVX512[0])}
	if last := rows % s.height; last > 4 {
		s.pad = last % 2
	}
	return s
}

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
	args, rows, form, step := &s.integer, a.OutRows(), w, to-from
	if w.grid() {
		s.expanded = w.expansion()
		form, step = &s.expanded, 2
	}
	args.set(form)
	args.setAMX(a, s)
	if w.per > 1 {
		args.setSuper(form, a, s)
	}
	args.format = form.integerFormat()
	args.outTile = rows * Tile * 4
	args.decoded = s.decoded()
	unit, atOnce := max(4, w.per), a.AtOnce()
	span := amxCodes / min(rows, atOnce) / w.group / unit * unit
	for g := 0; g < w.groups; g += span {
		groups := min(span, w.groups-g)
		for t := from; t < to; t += step {
			end := min(t+step, to)
			c := integerCall{args: args, w: w, n: n, a: a, out: out[(t-from)*rows*Tile:]}
			if w.grid() { // these tiles and columns become a weight
				c.w, c.n = s.expand(w, n, t, end, g/w.per, (g+groups)/w.per, best512), 0
				args.tileBytes = c.w.tileBytes()
				c.spans(0, end-t, 0, g, groups)
			} else {
				c.spans(t, end, g, g, groups)
			}
		}
	}
	*args = integerArgs{}
}

// spans multiplies all strips with groups of tiles [from, to), from group g on, which multiply the activations
// from group first on.
func (c *integerCall) spans(from, to, g, first, groups int) {
	args, rows, atOnce := c.args, c.a.OutRows(), c.a.AtOnce()
	for r := 0; r < rows; r += atOnce {
		args.groups, args.more = groups, min(first, 1)
		args.supers = groups / c.w.per
		args.strips = min(atOnce, rows-r) / c.a.height
		args.acts = unsafe.Pointer(&c.a.strip(r)[first/c.w.per*args.actGroup])
		args.out = unsafe.Pointer(&c.out[r*Tile])
		args.run(c.w, c.n, from, to, g)
	}
}

// run multiplies the strips with tiles [from, to), from group g on. The kernels for superblocks take pairs of
// tiles, or one. A last tile and up to three groups do not fit the kernel for many strips and are left to
// the one for few.
func (args *integerArgs) run(w *Weight, n, from, to, g int) {
	groups, out, acts, more := args.groups, args.out, args.acts, args.more
	part := func(first, end, skip, groups int, many bool) {
		if first == end || groups == 0 {
			return
		}
		args.tiles, args.groups, args.more = end-first, groups, more
		if skip > 0 {
			args.more = 1
		}
		args.weights = unsafe.Pointer(unsafe.SliceData(w.at(n, first, g+skip)))
		args.acts = unsafe.Add(acts, skip*args.actGroup)
		args.out = unsafe.Add(out, (first-from)*args.outTile)
		amxKernel(w, many)(args)
	}
	pairs, panels := from+(to-from)&^1, groups&^3
	switch {
	case w.per > 1:
		part(from, pairs, 0, groups, false)
	case args.rows < amxHeight || args.strips*amxHeight < amxLow(w.group):
		pairs = from
	default:
		part(from, pairs, 0, panels, true)
		part(from, pairs, panels, groups-panels, false)
	}
	part(pairs, to, 0, groups, false)
}

// amxKernel is the kernel for a weight, and for many strips, or few.
func amxKernel(w *Weight, many bool) func(*integerArgs) {
	signed := !w.biased() || w.zero != 0 // codes less zero points are signed
	points := w.zeros > 0 && w.bits == 8 // but those of 8 bits are too large
	switch {
	case points && many:
		return integerManyPoints
	case points:
		return integerAMXPoints
	case w.per > 1 && signed:
		return integerSuper
	case w.factors == Factors2K:
		return integerSuperLeast2
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

// Working sets of the AMX kernels. Activations of Activations.AtOnce rows, and amxCodes codes of
// them, stay in the L2 cache while tiles pass. The L1 cache has the unpacked codes of four groups
// of a tile, with their scales and those of the next four, and four products: with more
// groups the caches of a core that is shared by two hyperthreads are too small. For many strips
// it is four groups of two tiles, the next four, and a strip.
const (
	amxCodes      = 512 << 10
	manySlotBytes = 4 * Tile * (128 + 2*2*4)    // four groups of a tile
	manyProducts  = 2 * 2 * 4 * Tile * Tile * 4 // of two turns, in bytes
)

// setAMX sets the fields that depend on the rows.
func (args *integerArgs) setAMX(a *Activations, s *Scratch) {
	args.rows = a.height
	args.actRow, args.actGroup, args.actTail = a.group, a.stride(a.height), a.group*a.height
	args.actStrip = a.groups * args.actGroup
	args.slotTail = a.group * Tile
	args.slot = args.slotTail + 2*2*Tile*4
	args.scalesAt = args.slotTail
	args.pace = 1 + 8*a.height/min(a.OutRows(), a.AtOnce())
	s.tiles = aligned(s.tiles, 2*manyProducts+4*manySlotBytes+Tile*Tile*4)
	products := unsafe.Pointer(&s.tiles[0]) // few strips need half of them
	args.products = unsafe.Add(products, -int(uintptr(products))&(manyProducts-1))
	args.slots = unsafe.Add(args.products, manyProducts)
	args.nowhere = unsafe.Add(args.slots, 4*manySlotBytes)
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

// Working memory of the kernels for superblocks: products of two turns, scales of four superblocks, and planes
// of two.
const (
	superProducts = 2 * 4 * Tile * Tile * 4
	superScales   = 4 * 1024
	superSlots    = 2 * 2 * Tile * 256
)

// setSuper sets the fields of superblocks.
func (args *integerArgs) setSuper(w *Weight, a *Activations, s *Scratch) {
	s.tiles = aligned(s.tiles, 2*superProducts+superScales+superSlots)
	products := unsafe.Pointer(&s.tiles[0])
	args.products = unsafe.Add(products, -int(uintptr(products))&(superProducts-1))
	args.scaled = unsafe.Add(args.products, superProducts)
	args.slots = unsafe.Add(args.scaled, superScales)
	turns := (min(a.OutRows(), a.AtOnce())/a.height + 1) / 2
	fetches := turns * 2 * 3 // of all steps of the two tiles but the first of a turn
	args.fetchLines = (w.superBytes()/cacheLine + fetches - 1) / fetches
	if args.fetchSkip = 0; turns < 4 { // the next superblock is too near
		args.fetchSkip = w.superBytes()
	}
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
	height := amxHeight
	if rows < amxLow(r.group) {
		n := (rows + height - 1) / height
		height = (rows + n - 1) / n
	}
	return strips{height: height, pad: (height - rows%height) % height, byRow: true}
}

// amxRows is from how many rows on tiles are the faster way. Measured on a Xeon of the fifth
// generation, weights from memory, in parts of the time of AVX-512: 8 rows take 1.0 to 1.1, 9 rows
// 0.7 to 0.9, 16 rows 0.6 to 0.7, 32 rows 0.5. The kernels count on it: no strip has fewer.
const amxRows = 9

// amxSuperRows is the same for superblocks with groups of 32: unpacking takes longer there. On one thread,
// weights from the caches, 9 rows take 0.85 to 1.0 of the time of AVX-512 and 16 rows 0.75 to 0.85; from
// memory 9 rows 1.15 to 1.45, 12 rows 1.05 to 1.2 and 16 rows 0.8 to 0.9.
const amxSuperRows = 16

// amxHeight is how many rows a strip can have.
const amxHeight = 16

// amxLow is from how many rows on strips are as high as they can be, so that the kernel for many strips
// can have them. On one thread, with groups of 64, 48 rows take 1.05 to 1.1 of the time of the other kernel, 64
// rows 0.98 to 1.03, 80 rows 0.91 to 0.97; with groups of 32 48 rows take 0.93, and padding to 48 rows costs as much
// as it gains at 33 to 36 rows. For superblocks it is where padding is a small part.
func amxLow(group int) int {
	if group < 64 {
		return 37
	}
	return 49
}

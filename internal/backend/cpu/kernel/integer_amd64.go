//go:build !noasm

package kernel

import "unsafe"

//go:generate go run -C _gen ./integer

// integerTilesAVX512 is integerTiles.
func integerTilesAVX512(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerStrips(integerAVX512[w.integerFormat()][:], out, w, n, from, to, a, s)
}

// integerTilesAVX2 is integerTiles.
func integerTilesAVX2(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerStrips(integerAVX2[w.integerFormat()][:], out, w, n, from, to, a, s)
}

// stripsAVX512 and stripsAVX2 are Set.strips.
func stripsAVX512(int, int) strips { return strips{height: len(integerAVX512[0])} }
func stripsAVX2(int, int) strips   { return strips{height: len(integerAVX2[0])} }

// integerTilesAMX is integerTiles. Rows that are laid out by fours, being few or in groups
// that do not fit tiles, go to AVX-512. A few strips unpack a block each on their own, many
// share it.
func integerTilesAMX(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	if !a.byRow {
		integerTilesAVX512(out, w, n, from, to, a, s)
		return
	}
	args := &s.integer
	args.setAMX(a, s)
	if a.rows < amxManyRows {
		f := w.integerFormat()
		integerStrips(integerStrip[f:f+1], out, w, n, from, to, a, s)
	} else {
		args.set(w)
		args.manyStrips(out, w, n, from, to, a)
	}
	*args = integerArgs{}
}

// manyStrips multiplies tiles with many strips: every block is unpacked once for all of them.
func (args *integerArgs) manyStrips(out []float32, w *Weight, n, from, to int, a *Activations) {
	rows, strip := a.OutRows(), w.groups*args.actGroup
	span := amxColumns / w.group
	for g := 0; g < w.groups; g += span {
		last := min(g+span, w.groups)
		for r := 0; r < rows; r += amxRowsAtOnce {
			args.strips = min(amxRowsAtOnce, rows-r) / a.height
			acts := a.data[r/a.height*strip:]
			for t := from; t < to; t++ {
				args.out = unsafe.Pointer(&out[((t-from)*rows+r)*Tile])
				args.amxTile(w, n, t, g, last, acts)
			}
		}
	}
}

// amxTile multiplies groups [from, to) of tile t with some strips of rows. A few groups at a
// time are unpacked, into the first cache, and multiplied with all of the strips.
func (args *integerArgs) amxTile(w *Weight, n, t, from, to int, acts []byte) {
	unpack, multiply := integerUnpack[w.integerFormat()], integerAMX
	if w.fp4() {
		multiply = integerAMXFP4
	}
	panel := amxSlotBytes / args.slot
	for g := from; g < to; g += panel {
		args.groups, args.more = min(panel, to-g), min(g, 1)
		args.actSkip = (w.groups - args.groups) * args.actGroup
		args.weights = unsafe.Pointer(unsafe.SliceData(w.at(n, t, g)))
		args.acts = unsafe.Pointer(&acts[g*args.actGroup])
		args.ahead = uintptr(args.weights) + uintptr(args.groups*w.block)
		args.aheadEnd = args.ahead + uintptr(args.groups*w.block)
		unpack(args)
		multiply(args)
	}
}

// What the AMX kernels work on at a time. Activations of amxRowsAtOnce rows and amxColumns
// columns stay in the second cache while tiles pass; amxSlotBytes of unpacked codes, beside the
// strip that meets them and the products, in the first.
const (
	amxRowsAtOnce = 128
	amxColumns    = 4096
	amxSlotBytes  = 9728
	amxProducts   = 4096
	amxAlign      = 2 * amxProducts
)

// setAMX fills in what depends on the rows.
func (args *integerArgs) setAMX(a *Activations, s *Scratch) {
	args.rows = a.height
	args.actRow, args.actGroup, args.actTail = a.group, a.stride(a.height), a.group*a.height
	args.slot = a.group*Tile + 2*Tile*4
	s.tiles = aligned(s.tiles, amxAlign+amxProducts+amxSlotBytes)
	products := unsafe.Pointer(&s.tiles[0])
	args.products = unsafe.Add(products, -int(uintptr(products))&(amxAlign-1))
	args.slots = unsafe.Add(args.products, amxProducts)
	width := min(a.group, 64)
	args.config = [64]byte{0: 1}
	for t := 0; t < 6; t += 3 { // products, activations, codes: bytes of a row, rows
		args.config[16+2*t], args.config[18+2*t], args.config[20+2*t] = 64, byte(width), 64
		args.config[48+t], args.config[49+t], args.config[50+t] = byte(a.height), byte(a.height), byte(width/4)
	}
}

// stripsAMX is Set.strips. A few strips are all of one height, and no higher than
// the rows need.
func stripsAMX(rows, group int) strips {
	if rows < amxRows || group > 128 || group&(group-1) != 0 {
		return stripsAVX512(rows, group)
	}
	height := 16
	if rows < amxManyRows {
		n := (rows + height - 1) / height
		height = (rows + n - 1) / n
	}
	return strips{height: height, byRow: true}
}

// amxRows is from how many rows on tiles are the faster way. Measured on a Xeon of the fourth
// generation, in parts of the time of AVX-512: with weights in the second cache 8 rows take
// 0.5 to 0.8, 9 rows 0.4 to 0.6 and 16 rows 0.4 to 0.7; with weights from memory 8 rows take
// 1.1 to 1.3, 9 rows 0.8 to 1.0 and 16 rows 0.7 to 0.9.
const amxRows = 9

// amxManyRows is from how many rows on strips share unpacked blocks. That takes 0.9 to 1.5
// times as long at 32 rows, 0.8 to 1.4 times at 48 rows, and 0.7 to 1.2 times at 64 rows:
// least with 5 bits, most with 8.
const amxManyRows = 49

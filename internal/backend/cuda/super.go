package cuda

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// superCols is how many columns a superblock has, which is a block on the device.
const superCols = 256

// superForm is where the parts of a superblock are, in bytes, and the shapes of its kernels, in kernels/MODULE.cu.
type superForm struct {
	module, name string
	low, high    int // bits of codes
	factors      int // those of biases included
	scales       int // likewise
	stages       int // blocks that are under way in a relay of up to eight rows
}

// superForms are those of factors and bits.
var superForms = map[superKey]*superForm{
	{kernel.FactorsK, 4}:    {"super", "q4k", 2048, 0, 256, 64, 4},
	{kernel.FactorsK, 5}:    {"super", "q5k", 2048, 512, 256, 64, 4},
	{kernel.Factors6K, 6}:   {"super", "q6k", 2048, 1024, 256, 32, 3},
	{kernel.FactorsXS, 4}:   {"super", "xs", 2048, 0, 128, 32, 4},
	{kernel.Factors2K, 2}:   {"supersmall", "q2k", 1024, 0, 256, 64, 4},
	{kernel.Factors6K, 3}:   {"supersmall", "q3k", 1024, 512, 256, 32, 4},
	{kernel.NoFactors, 2}:   {"supersmall", "tq", 1024, 0, 0, 32, 4},
	{kernel.FactorsGrid, 8}: {"supersmall", "s8", 4096, 0, 256, 64, 2},
}

// gridForms are those of grid formats in their own bits.
var gridForms = map[dtype.Format]*superForm{
	dtype.IQ3XXS: {"supergrid", "iq3xxs", 1024, 512, 64, 32, 4},
	dtype.IQ3S:   {"supergrid", "iq3s", 1024, 640, 64, 32, 4},
	dtype.IQ2XXS: {"supergrid", "iq2xxs", 512, 512, 64, 32, 4},
	dtype.IQ2XS:  {"supergrid", "iq2xs", 512, 576, 128, 32, 4},
	dtype.IQ2S:   {"supergrid", "iq2s", 512, 640, 128, 32, 4},
}

type superKey struct {
	factors kernel.Factors
	bits    int
}

// Blocks of the kernels for many rows.
const superRows, superTiles, superStages = 64, 4, 2

// super reports whether w is in blocks of superblocks. Grid formats are also for products of floats: their codes are written out.
func (w *weight) super() bool {
	return w.Integer() && (w.packed.Per > 1 || w.packed.First) || w.packed.Kind == kernel.Grid
}

func (w *weight) superForm() *superForm {
	if f := gridForms[w.format]; f != nil {
		return f
	}
	return superForms[superKey{w.Factors, w.Bits}]
}

// kernel is the name of a kernel for the form.
func (f *superForm) kernel(name string) string { return f.module + "." + name + "_" + f.name }

func (f *superForm) block() int { return f.low + f.high + f.factors + f.scales }

// arrangeSuper changes the layout of a weight with superblocks to that of kernels/super.cuh.
func (w *weight) arrangeSuper() {
	l := &w.Layout
	if l.Kind == kernel.Grid {
		l.Bits, l.Factors, l.Zero = 8, kernel.FactorsGrid, -dtype.GridMiddle
	}
	f := w.superForm()
	if gridForms[w.format] != nil {
		w.table = gridTable(w.format)
	}
	l.Per, l.Group, l.Groups = 1, superCols, w.Cols()/superCols
	l.Codes, l.Block, l.Tail = f.low+f.high, f.block(), 0
	l.TileSize = l.Groups * l.Block
}

// laySuper writes a tile from one that the CPU has packed.
func (w *weight) laySuper(dst, tile []byte) {
	clear(dst)
	src, f := &w.packed, w.superForm()
	var codes [superCols / 4 * kernel.Tile]uint32
	size := src.Per*src.Block + src.Tail
	for i := range w.Layout.Groups {
		block, super := dst[i*w.Block:][:w.Block], tile[i*size:][:size]
		factors, scales := block[f.low+f.high:], block[w.Block-f.scales:]
		switch {
		case w.table != nil:
			w.layIndices(block, super)
			continue
		case src.Kind == kernel.Grid:
			w.layGrid(block, factors, scales, super)
			continue
		}
		for g := range src.Per {
			w.BlockCodes(codes[g*src.Group/4*kernel.Tile:], super[g*src.Block:][:src.Codes])
		}
		w.laySuperCodes(block, codes[:])
		w.laySuperScales(factors, scales, super)
	}
}

// laySuperScales writes factors and scales from a superblock that the CPU has packed.
func (w *weight) laySuperScales(factors, scales, super []byte) {
	le, src, f := binary.LittleEndian, &w.packed, w.superForm()
	tail := super[src.Per*src.Codes:]
	for r := range kernel.Tile {
		for g := range src.Per {
			if f.factors == 0 {
				break
			}
			scale, bias := w.SmallFactors(tail, r, g)
			at := src.Per*pair(r) + g
			switch src.Factors {
			case kernel.Factors2K:
				scale |= bias << 4
			case kernel.FactorsK:
				factors[f.factors/2+at] = byte(bias)
			}
			factors[at] = byte(scale)
		}
		for at := 0; at < f.scales; at += 2 * kernel.Tile {
			le.PutUint16(scales[at+2*pair(r):], le.Uint16(tail[at+2*r:]))
		}
	}
}

// layGrid writes a block from a superblock of a grid format, with its codes written out as signed bytes.
func (w *weight) layGrid(block, factors, scales, super []byte) {
	var e kernel.Expanded
	w.Expand(&e, super)
	const words = 8 * kernel.Tile
	le := binary.LittleEndian
	for g := range superCols / 32 {
		group := e.Codes[g*words:][:words]
		for lane := range 32 {
			at := lane/4 + lane%4*kernel.Tile
			for i, c := range [4]uint32{group[at], group[at+8], group[at+4*kernel.Tile], group[at+4*kernel.Tile+8]} {
				le.PutUint32(block[512*g+16*lane+4*i:], c)
			}
		}
	}
	for r := range kernel.Tile {
		for g := range superCols / 16 {
			factors[16*pair(r)+g] = e.Factors[kernel.Tile*g+r]
		}
		le.PutUint32(scales[4*pair(r):], math.Float32bits(e.Scales[r]))
	}
}

// gridTable is the table of a grid format: magnitudes.
func gridTable(f dtype.Format) []byte {
	table := bytes.Clone(f.GridTable())
	for i := range table {
		table[i] -= dtype.GridMiddle
	}
	return table
}

// grid describes indices and factors: see struct Weight of kernels/weight.cuh.
func (w *weight) grid() int {
	if w.table == nil {
		return 0
	}
	entry, top := 8, bits.Len(uint(len(w.table)/8-1))-8
	if w.superForm().low == 1024 {
		entry, top = 4, top+1
	}
	return entry | top<<4 | w.superForm().factors/128<<8
}

// layIndices writes a block from a superblock of a grid format in its own bits.
func (w *weight) layIndices(block, super []byte) {
	var p kernel.GridParts
	w.GridParts(&p, super)
	le, f, grid := binary.LittleEndian, w.superForm(), w.grid()
	entry, top := grid&15, grid>>4&15
	signs := block[f.low:]
	high, factors, scales := signs[512:], block[f.low+f.high:], block[w.Block-f.scales:]
	for r := range kernel.Tile {
		for v := range superCols / 4 { // words of four columns
			g, q := v/8, v%4
			lane, i, n := 4*(r%8)+q, g/2, 4*(g%2)+r/8+2*(v%8/4)
			index, at := p.Indices[r][4*v/entry], 256*i+8*lane
			if entry == 8 {
				at = 128*i + 8*(lane/2)
			}
			block[at+n] = byte(index)
			switch {
			case top == 1 && entry == 4:
				high[4*lane+i] |= byte(index>>8) << n
			case top == 1 && q%2 == 0:
				high[16*i+lane/2] |= byte(index>>8) << n
			case top == 2 && q%2 == 0:
				to := high[2*(16*i+lane/2):]
				le.PutUint16(to, le.Uint16(to)|index>>8<<(2*n))
			}
			for k := range 4 {
				minus := p.Signs[r][v/2] >> (v%2*4 + k) & 1
				signs[128*i+4*lane+k] |= minus << n
			}
		}
		groups := f.factors / 8
		for g := range groups {
			half := p.Factors[kernel.Tile*(g*16/groups)+r] / 2
			factors[groups/2*pair(r)+g/2] |= half << (4 * (g % 2))
		}
		le.PutUint16(scales[2*pair(r):], p.Halves[r])
	}
}

// laySuperCodes writes the codes of a block, which are as BlockCodes has them: eight words of four columns of every
// output for each group of 32.
func (w *weight) laySuperCodes(block []byte, codes []uint32) {
	const words, nibbles = 8 * kernel.Tile, 0x0f0f0f0f
	le, f, xs := binary.LittleEndian, w.superForm(), w.packed.Factors == kernel.FactorsXS
	for g := 0; len(codes) >= words; g, codes = g+1, codes[words:] {
		group := (*[words]uint32)(codes)
		low := block[f.low/4*(g/2):][:f.low/4] // of a pair of groups, of which this has every second word or two
		for lane := range 32 {
			// Output and columns of the first word; the others are eight outputs further, 16 columns, and both.
			at := lane/4 + lane%4*kernel.Tile
			c := [4]uint32{group[at], group[at+8], group[at+4*kernel.Tile], group[at+4*kernel.Tile+8]}
			switch {
			case w.packed.Bits < 4:
				le.PutUint32(low[8*lane+4*(g%2):], w.layTwos(&c))
			case xs:
				le.PutUint64(low[16*lane+8*(g%2):], squeeze(c[0])|squeeze(c[2])<<16|squeeze(c[1])<<32|squeeze(c[3])<<48)
			default:
				le.PutUint64(low[16*lane+8*(g%2):], uint64(c[0]&nibbles|c[2]&nibbles<<4)|uint64(c[1]&nibbles|c[3]&nibbles<<4)<<32)
			}
			w.layHigh(block[f.low:], &c, g, lane)
		}
	}
}

// layTwos is the low two bits of four words. Those of TQ1_0 and TQ2_0 are signed.
func (w *weight) layTwos(c *[4]uint32) uint32 {
	const two = 0x03030303
	low := c[0]&two | c[1]&two<<2 | c[2]&two<<4 | c[3]&two<<6
	if w.packed.First {
		low ^= 0xaaaaaaaa
	}
	return low
}

// layHigh writes the high bits of four words of a lane. Those of Q3_K and Q6_K are signed.
func (w *weight) layHigh(high []byte, c *[4]uint32, g, lane int) {
	le := binary.LittleEndian
	switch w.packed.Bits {
	case 3, 5:
		const one = 0x01010101
		at, s := high[4*(32*(g/2)+lane):], w.packed.Bits-1
		h := c[0]>>s&one | c[1]>>s&one<<1 | c[2]>>s&one<<2 | c[3]>>s&one<<3
		if s == 2 {
			h ^= 0x0f0f0f0f
		}
		le.PutUint32(at, le.Uint32(at)|h<<(4*(g%2)))
	case 6:
		const two = 0x30303030
		h := c[0]&two>>4 | c[1]&two>>2 | c[2]&two | c[3]&two<<2
		le.PutUint32(high[4*(64*(g/2)+2*lane+g%2):], h^0xaaaaaaaa)
	}
}

// squeeze is four codes of 4 bits without the space between them.
func squeeze(c uint32) uint64 {
	c = (c | c>>4) & 0x00ff00ff
	return uint64((c | c>>8) & 0xffff)
}

// superRelay is how many rows a relay of superblocks multiplies.
const superRelay = 2 * strip

// relaySuper launches products of up to superRelay rows with weights in superblocks.
func (b *Backend) relaySuper(list []product) {
	f := list[0].w.superForm()
	name, stages := f.kernel("relay")+"_1", f.stages
	if list[0].rows > strip {
		name, stages = f.kernel("relay")+"_2", min(3, f.stages)
	}
	b.teams(name, 8*stages*list[0].w.Block, 1, list)
}

// superRow launches products of one row, with the norm and the gate before them if they can have them.
func (b *Backend) superRow(list []product) {
	row := b.takeRow(list)
	if row == nil {
		row = &rowInput{}
	}
	b.oneSuper(list, *row, nil)
	if b.passes.recording != nil {
		b.passes.mark(&joint{slices.Clone(list), row})
	}
}

// oneSuper launches products of one row, which they normalize if it comes as numbers, and gate on request.
func (b *Backend) oneSuper(list []product, row rowInput, g *gated) {
	w := list[0].w
	var gates superGatesParam
	if g != nil {
		gates = superGatesParam{arrived: b.zeros(&b.gates, w.Rows()/superCols*4), dst: b.at(g.dst), codes: g.codes.codes, tails: g.codes.tails, tailRows: i32(g.codes.tailRows)}
	}
	name, shared := w.oneKernel(&row)
	b.teams(name, shared, 1, list, row.param(), raw(gates))
}

// oneKernel is the kernel for one row, and the shared memory of a block.
func (w *weight) oneKernel(row *rowInput) (name string, shared int) {
	f := w.superForm()
	shared = 8 * f.stages * w.Block
	if row.x != 0 {
		shared += superRowBytes(row.cols)
	}
	return f.kernel("one"), shared
}

// superRowBytes is the shared memory of a row: as floats, as codes, and the sums and scales of superblocks.
func superRowBytes(cols int) int { return 5*cols + cols/superCols*(16+4) }

// Blocks of the kernels for a few dozen rows: warps at most, and how many rows each has.
const superWarps, superPart, superPanelStages = 20, 16, 4

// panelSuper launches products of a few dozen rows. Tiles are spread evenly over the multiprocessors, in as few rounds as
// warps and memory permit.
func (b *Backend) panelSuper(list []product) {
	p, tiles := &list[0], tilesOf(list)
	f, down := p.w.superForm(), (p.rows+superPart-1)/superPart
	space := func(size int) int { return superPanelStages * (size*p.w.Block + down*superPart*(superCols+24)) }
	size, blocks, limit := 0, 1, b.info.Shared-len(p.w.table)
	if p.jobs != 0 { // they fill the device anyway
		blocks, tiles = p.tiles/p.w.Layout.Tiles, tiles*p.w.Layout.Tiles/p.tiles
		for size = min(tiles, superWarps/down); space(size) > limit/2; size-- {
		}
	}
	for rounds := 1; size == 0; rounds++ {
		places := b.info.Multiprocessors * rounds
		if n := (tiles + places - 1) / places; n*down <= superWarps && space(n) <= limit {
			size = n
		}
	}
	b.launchAs(f.kernel("panel"), sizes(list...), grid{x: (tiles + size - 1) / size * blocks, threads: 32 * size * down, shared: space(size)}, p.param(), parts(list), size)
}

// manySuper launches a product of many rows with such a weight.
func (b *Backend) manySuper(list []product) {
	p := &list[0]
	f := p.w.superForm()
	across, down := (p.tiles+superTiles-1)/superTiles, (p.rows+superRows-1)/superRows
	shared := superStages * (superTiles*p.w.Block + superRows*(superCols+24))
	b.launchAs(f.kernel("many"), p.sizes(), grid{x: down, y: across, threads: 128, shared: shared}, p.param())
}

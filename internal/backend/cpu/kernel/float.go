package kernel

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
)

//go:generate go run -C _gen ./float
//go:generate go run -C _gen ./neon

// floatKernels are the inner loops of a float product on one instruction set. Their
// blocking is run's; every blocking gives the same bits, since a call of product continues
// the chains of the last one.
type floatKernels struct {
	// product multiplies, by element type and number of tiles less one. A set that has no
	// kernel for two tiles has nil there.
	product [3][2]func(a *floatArgs)
	// expanders are those of the set.
	expanders expanders
	// rows is how many rows product takes at once.
	rows int
	// decode writes the float32 values of blocks, by kind.
	decode [decoders]func(a *decodeArgs)
	// factors decodes those of a superblock, by kind: only weights, per, block and decoded of
	// its operands are set. The twin is Weight.superScale.
	factors [Factors2K + 1]func(a *integerArgs)
}

// Element types, as indices.
const (
	elemBF16 = iota
	elemF16
	elemF32
)

// Kinds of blocks to decode; affine blocks have the number of their bits.
const (
	decodeFP4 = iota
	decodeE4M3
	decodeLevels = 7 // no code has seven bits
	decoders     = 9
)

// Flags of element types of scales: decodeZero is added if they imply the
// biases, and are F16 or F32, decodePoints if codes have zero points.
const (
	decodeZero   = 2
	decodePoints = 8
)

// floatArgs are the operands of one product: one or two tiles, some columns, some rows.
type floatArgs struct {
	w      [2]unsafe.Pointer // columns of each tile, in the layout of a plain weight
	x      unsafe.Pointer    // rows of the input
	stride uintptr           // bytes between rows
	even   [2]unsafe.Pointer // [rows, tile]: chains over even columns; the result
	odd    [2]unsafe.Pointer // [rows, tile]: chains over odd columns
	rows   int
	pairs  int        // of columns
	tail   int        // 1: one more column follows the pairs
	first  int        // 1: the chains begin here, even and odd are not read
	last   int        // 1: the chains end here, even becomes their sum, odd is not written
	ahead  [2]uintptr // memory to prefetch beside each tile; it need not exist
	step   uintptr    // bytes of it per cache line of the tile
}

// decodeArgs are the operands of a decoder.
type decodeArgs struct {
	dst     unsafe.Pointer // [blocks, columns, tile]
	block   unsafe.Pointer // first block
	scales  unsafe.Pointer // of the first block, its biases behind them
	columns int            // of a block
	scale   int            // element type of its scales, with flags
	blocks  int            // at least one
	stride  int            // bytes from block to block
	step    int            // bytes from scales to scales
	zero    float32        // biases in scales, or zero points, negative, if none are stored
	zeros   int            // bytes from the scales to the zero points; 0: none are stored
}

const (
	// panelBytes is how much of a tile is multiplied with all rows before another part: two
	// of these, the two that come next and the rows beside them fit a first-level cache.
	panelBytes = 8 << 10
	// panelTiles is how many tiles go through one panel of columns before the next.
	panelTiles = 32
	// aheadBytes is the distance of prefetching if a tile is read in one pass; tiles read
	// side by side share it.
	aheadBytes = 9 << 10
)

// floatBlocking is one call of floatKernels.run.
type floatBlocking struct {
	k       *floatKernels
	w       *Weight
	n       int
	x       Rows
	s       *Scratch
	out     []float32 // of the tiles under way
	from    int       // first of them
	elem    int
	decoder int // -1: plain
	streams int // tiles at once
	panel   int // blocks multiplied with all rows before the next
	passes  int // over a panel, for some rows each
	decoded int // floats of scratch for decoded panels
}

// run is Set.Float.
//
// As long as the registers have space for the chains of all rows, a plain tile is read in one go.
// Other products cut the columns into panels, and every panel of a tile, decoded if need
// be, stays in the cache while all rows pass, and meanwhile the next one is fetched.
func (k *floatKernels) run(out []float32, w *Weight, n, from, to int, x Rows, s *Scratch) {
	if w.grid() {
		for ; from < to; from += 2 {
			tiles := min(2, to-from)
			size := tiles * x.N * Tile
			k.run(out[:size], s.expand(w, n, from, from+tiles, 0, w.groups/w.per, k.expanders), 0, 0, tiles, x, s)
			out = out[size:]
		}
		return
	}
	b := floatBlocking{k: k, w: w, n: n, x: x, s: s, elem: elemF32, streams: 1}
	if k.product[0][1] != nil {
		b.streams = 2
	}
	b.passes = (x.N + k.rows - 1) / k.rows
	b.decoder = w.decoder()
	if b.decoder < 0 {
		b.elem = elemOf(w.elem)
	}
	b.panel = w.groups
	if b.passes > 1 || b.decoder >= 0 {
		b.panel = b.panelBlocks()
	}
	if b.decoder >= 0 {
		b.decoded = b.streams * b.panel * w.group * Tile
	}
	s.float.stride = 4 * uintptr(x.Stride)
	for ; from < to; from += panelTiles {
		end := min(from+panelTiles, to)
		size := (end - from) * x.N * Tile
		s.floats = Grow(s.floats, b.decoded+size)
		b.out, out = out[:size], out[size:]
		b.tiles(from, end)
	}
	s.float, s.decode = floatArgs{}, decodeArgs{} // refer to no memory of others
}

// lineColumns is how many columns of a tile fill a cache line: two for types of 2 bytes.
func (b *floatBlocking) lineColumns() int {
	if b.elem == elemF32 {
		return 1
	}
	return 2
}

// panelBlocks is how many blocks make a panel. Chains restart at every block, so blocks
// of an odd number of columns stay alone.
func (b *floatBlocking) panelBlocks() int {
	if b.w.group%2 == 1 {
		return 1
	}
	n := min(max(1, panelBytes/64*b.lineColumns()/b.w.group), b.w.groups)
	for b.w.per > 1 && b.w.per%n != 0 {
		n-- // a panel is part of a superblock, where blocks follow one another
	}
	return n
}

// tiles multiplies tiles [from, to), panel by panel. Each stream runs over adjacent
// tiles, so that the memory beyond the end of a tile is the next one.
func (b *floatBlocking) tiles(from, to int) {
	b.from = from
	half := (to - from) / b.streams
	for g := 0; g < b.w.groups; g += b.panel {
		b.setColumns(g)
		for i := range half {
			next, at := i+1, g
			if next == half {
				next, at = 0, min(g+b.panel, b.w.groups-1)
			}
			for j := range b.streams {
				b.setTile(j, i+j*half, g)
				b.setAhead(j, next+j*half, at)
			}
			b.multiply(b.streams, i, half, g)
		}
		if i := half * b.streams; i < to-from {
			b.setTile(0, i, g)
			b.setAhead(0, i, g)
			b.multiply(1, i, 0, g)
		}
	}
}

// setColumns prepares for the panel that begins with block g.
func (b *floatBlocking) setColumns(g int) {
	a, w := &b.s.float, b.w
	width := min(b.panel*w.group, w.cols-g*w.group)
	a.pairs, a.tail = width/2, width%2
	a.first, a.last = 0, 0
	if g == 0 {
		a.first = 1
	}
	if g+b.panel >= w.groups {
		a.last = 1
	}
}

// setTile makes the panel of tile i that begins with block g the weights of stream j.
func (b *floatBlocking) setTile(j, i, g int) {
	w := b.w
	if b.decoder < 0 {
		b.s.float.w[j] = unsafe.Pointer(&w.at(b.n, b.from+i, g)[0])
		return
	}
	blocks := min(b.panel, w.groups-g)
	size := b.panel * w.group * Tile
	dst := b.s.floats[j*size:][:size]
	d, block := &b.s.decode, w.at(b.n, b.from+i, g)
	*d = decodeArgs{
		dst: unsafe.Pointer(&dst[0]), block: unsafe.Pointer(&block[0]),
		columns: w.group, scale: elemOf(w.scale), blocks: blocks, stride: w.block, step: w.block,
	}
	if w.per > 1 {
		d.scales, d.step = b.factors(i, g)
		d.scale = elemF32
	} else {
		d.scales = unsafe.Pointer(&block[w.codes])
	}
	switch {
	case w.zeros > 0:
		d.scale, d.zeros = d.scale+decodePoints, w.zeros-w.codes
	case w.pointed():
		d.scale, d.zero = d.scale+decodePoints, w.zero
	case w.zero != 0:
		d.scale, d.zero = d.scale+decodeZero, w.zero
	}
	b.k.decode[b.decoder](d)
	b.s.float.w[j] = d.dst
}

// factors decodes those of the superblock of block g of tile i, and returns the address of the
// block's, and their step.
func (b *floatBlocking) factors(i, g int) (scales unsafe.Pointer, step int) {
	w := b.w
	if step = Tile * 4; w.least() {
		step *= 2
	}
	if w.factors == FactorsGrid {
		w.gridFactors(unsafe.Slice((*float32)(b.s.decoded()), gridPer*Tile), w.super(b.n, b.from+i, g/w.per)[expandedCodes:])
		return unsafe.Add(b.s.decoded(), g%w.per*step), step
	}
	a := &b.s.integer
	a.weights, a.decoded = unsafe.Pointer(&w.super(b.n, b.from+i, g/w.per)[0]), b.s.decoded()
	a.per, a.block = w.per, w.block
	b.k.factors[w.factors](a)
	a.weights, a.decoded = nil, nil
	return unsafe.Add(b.s.decoded(), g%w.per*step), step
}

// setAhead sets the prefetching of stream j: the next memory, or the panel
// of tile i that begins with block g, spread over all passes.
func (b *floatBlocking) setAhead(j, i, g int) {
	a := &b.s.float
	if b.passes == 1 && b.decoder < 0 {
		a.ahead[j] = uintptr(a.w[j]) + uintptr(aheadBytes/b.streams)
		a.step = 64
		return
	}
	a.ahead[j] = uintptr(unsafe.Pointer(&b.w.at(b.n, b.from+i, g)[0]))
	lines := max(1, b.passes*a.pairs*2/b.lineColumns())
	a.step = uintptr((b.panel*b.w.block + lines - 1) / lines)
}

// multiply multiplies one panel, which begins with block g, of tile i, and of tile i+half
// if there are two, with all rows.
func (b *floatBlocking) multiply(tiles, i, half, g int) {
	a, m := &b.s.float, b.x.N
	odd := b.s.floats[b.decoded:]
	rows := (m + b.passes - 1) / b.passes
	for r := 0; r < m; r += rows {
		a.rows = min(rows, m-r)
		a.x = unsafe.Pointer(&b.x.Data[r*b.x.Stride+g*b.w.group])
		for j := range tiles {
			at := ((i+j*half)*m + r) * Tile
			a.even[j] = unsafe.Pointer(&b.out[at])
			a.odd[j] = unsafe.Pointer(&odd[at])
		}
		b.k.product[b.elem][tiles-1](a)
		for j := range tiles {
			a.ahead[j] += a.step * uintptr(a.pairs*2/b.lineColumns())
		}
	}
}

// decoder is the kind of w's blocks, or -1 if they are plain.
func (w *Weight) decoder() int {
	switch {
	case w.format == dtype.Plain:
		return -1
	case w.biased() || w.pointed():
		return w.bits
	case w.fp4():
		return decodeFP4
	case w.format.Leveled():
		return decodeLevels
	default:
		return decodeE4M3
	}
}

func elemOf(t dtype.Type) int {
	switch t {
	case dtype.BF16:
		return elemBF16
	case dtype.F16:
		return elemF16
	default:
		return elemF32
	}
}

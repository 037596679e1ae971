package kernel

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Formats of integer weights, as indices.
const (
	integer2 = iota
	integer3
	integer4
	integer5
	integer6
	integer8
	integerFP4
	integerLevels // of IQ4_NL and IQ4_XS
	integerGrid   // of superblocks of grid formats that are expanded: see grid_generic.go
	integerFormats
)

// Types of scales in kernels.
const (
	scaleBF16 = iota
	scaleF16
	scaleF32
	scaleZero    = 4  // added for codes that are signed: see rounding.raise
	scalePoints  = 8  // added for codes with zero points, which follow the scales
	scaleFactors = 16 // in the tail of a superblock

	scaleZeroF16 = scaleZero | scaleF16
	scaleFirst   = 32 | scaleZeroF16 // of blocks that are superblocks without factors
)

// Forms of a panel's scales: what is added to sums of codes, or to products.
const (
	panelBiased = iota
	panelOffset // the offset of the row: codes were raised to be unsigned
	panelPoints // the offset times the zero points
	panelFirst  // the offset, and the scale of the weight is multiplied first
)

// integerArgs are the operands of an integer kernel: some tiles, one strip of rows.
type integerArgs struct {
	weights   unsafe.Pointer // first block of the first tile
	acts      unsafe.Pointer // the strip, codes by fours
	out       unsafe.Pointer // the strip's rows of the first tile
	tiles     int            // at least one
	groups    int
	steps     int // of 16 columns, in a group
	block     int // bytes of a block
	tileBytes int // bytes from tile to tile
	plane     int // offset of the second plane in a block
	codes     int // offset of the scales in a block
	scale     int // type of scales
	zeros     int // offset of the zero points in a block
	outTile   int // bytes from tile to tile of out

	per     int            // with scaleFactors: groups of a superblock
	tail    int            // bytes from its last group to the next one
	decoded unsafe.Pointer // its scales and biases as kernels decode them, see Scratch

	// For panels: see integerPanels.
	form     int // of scales
	planes   int // of the codes
	actsBack int // bytes from the last strip to the first
	outBack  int

	// For AMX, which takes strips by row.
	config   [64]byte       // shapes of the tiles
	format   int            // of the weight
	rows     int            // of a strip
	strips   int            // at least one
	more     int            // 1: out has the sums of the groups before
	actRow   int            // bytes from row to row of codes
	actGroup int            // bytes from group to group
	actStrip int            // bytes from strip to strip
	actTail  int            // offset of the scales in a group
	slots    unsafe.Pointer // unpacked blocks
	slot     int            // bytes of one
	slotTail int            // offset of the scales in a slot
	products unsafe.Pointer // of a panel

	// Addresses in AMX kernels. Not pointers: they may be behind the end.
	unpack             uintptr    // code that unpacks a block
	scalesAt           int        // offset of its scales from the slot
	slotAt             [4]uintptr // slots of a panel
	side, sideLeft     int        // tiles side by side
	toSide, outSide    int        // bytes from one to the next
	askAcross          int        // bytes to the stream that lines are asked of, too
	pairBlock, pairOut uintptr    // of the first tile
	pairsLeft          int        // of tiles to unpack
	nextBlock          uintptr    // first block of the next panel
	nextSlots          uintptr
	nextActs, nextOut  uintptr
	nextMore           int // 1: out has the sums of the panels before
	nextLeft           int // groups of these tiles, from nextBlock on
	nextGroups         int
	unpackLeft         int     // of nextGroups
	unpackNow          int     // blocks to unpack during this run
	panelSlots         uintptr // of the panel that is multiplied
	panelActs          uintptr
	panelScales        int // where its scales are, from a slot on
	panelMore          int // 1: out has the sums of the panels before
	groupsLeft         int // after this panel
	lag                int // turns before the first is added
	stripsLeft         int // after these
	stripActs          uintptr
	stripOut           uintptr
	addGroups          int // of the run before, which is added

	// For AMX with many strips: pairs of tiles, and what the next turn adds.
	second, outSecond    int     // bytes from one tile to the other
	pairsNext            int     // to unpack
	pace                 int     // blocks that a turn unpacks
	unpackSlot           uintptr // where the next of them goes
	addActs              uintptr // scales of the strip
	addSlots             uintptr // scales of the first tile
	addOut, addOutSecond uintptr
	addMore              int            // -1: these have the sums of the panels before
	nowhere              unsafe.Pointer // output of a padding strip, never read

	// For AMX with superblocks.
	supers       int            // superblocks of a tile
	scaled       unsafe.Pointer // ring of scales of superblocks
	factors      uintptr        // code that decodes factors
	nextFactors  uintptr        // where the scales of the next superblock go
	panelFactors uintptr        // scales of the one that is multiplied
	fetchAt      uintptr        // what to ask memory for, up to fetchEnd
	fetchEnd     uintptr
	fetchLines   int // in a step
	fetchSkip    int // bytes from the superblock that is next to what to ask for
	supersNext   int // superblocks to unpack
	turnsLeft    int // to multiply; then two more
	stepsLeft    int // of a turn
	multiplyLeft int // of these, to multiply
	panelHalf    int // 0: the first tile of a pair is multiplied
	actSecond    int // bytes from the first strip of a turn to the second; 0: there is none
	addSecond    int // 0: there is no second strip to add
	queueAt      int
	queue        [32]uintptr // of what is to be added, four times: scales, output, and so on
}

// integerFormat is the format of w as an index.
func (w *Weight) integerFormat() int {
	switch {
	case w.format.Grid():
		return integerGrid
	case w.fp4():
		return integerFP4
	case w.format.Leveled():
		return integerLevels
	case w.bits == 8:
		return integer8
	default:
		return integer2 + w.bits - 2
	}
}

// set sets the fields that are the same for all rows and tiles of a weight.
func (args *integerArgs) set(w *Weight) {
	args.groups, args.steps = w.groups, w.group/16
	args.block, args.tileBytes, args.codes = w.block, w.tileBytes(), w.codes
	args.per, args.tail = w.per, w.tail
	args.plane = w.group * Tile / 8 * planes(w.bits)[0]
	args.zeros = w.zeros
	switch w.scale {
	case dtype.F16:
		args.scale = scaleF16
	case dtype.F32:
		args.scale = scaleF32
	default:
		args.scale = scaleBF16
	}
	switch {
	case w.per > 1:
		args.scale = scaleFactors
	case w.first:
		args.scale = scaleFirst
	case w.zeros > 0:
		args.scale += scalePoints
	case w.zero != 0:
		args.scale += scaleZero
	}
}

// integerStrips multiplies strip after strip, by kernels indexed by the number of rows less
// one, the last of them for more rows, too.
func integerStrips(kernels []func(*integerArgs), out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	c := integerCall{&s.integer, out, w, n, a}
	c.open(s)
	c.strips(kernels, 0, from, to, from)
	*c.args = integerArgs{}
}

// integerCall is a product of some tiles, of which out begins with the first.
type integerCall struct {
	args *integerArgs
	out  []float32
	w    *Weight
	n    int // matrix of the stack
	a    *Activations
}

// open sets the fields that are the same for all strips and tiles.
func (c *integerCall) open(s *Scratch) {
	c.args.set(c.w)
	c.args.outTile = c.a.OutRows() * Tile * 4
	c.args.decoded = s.decoded()
}

// strips multiplies the strips from row first on with tiles [from, to). out begins with tile zero.
func (c *integerCall) strips(kernels []func(*integerArgs), first, from, to, zero int) {
	step := to - from
	if c.a.OutRows() > c.a.height {
		step = 8 // stay in the cache while all strips pass
	}
	for t := from; t < to && c.w.groups > 0; t += step {
		for r := first; r < c.a.OutRows(); r += c.a.height {
			c.args.tiles = min(step, to-t)
			c.run(kernels[min(c.a.inStrip(r), len(kernels))-1], r, t, 0, zero)
		}
	}
}

// run calls a kernel for the strip that begins at row r, from group g of tile t on.
func (c *integerCall) run(kernel func(*integerArgs), r, t, g, zero int) {
	args := c.args
	args.weights = unsafe.Pointer(unsafe.SliceData(c.w.at(c.n, t, g)))
	args.acts = unsafe.Pointer(&c.a.strip(r)[g*c.a.stride(c.a.inStrip(r))])
	args.out = unsafe.Pointer(&c.out[(t-zero)*args.outTile/4+r*Tile])
	kernel(args)
}

// Sizes of the wide kernel: rows of a strip, and adjacent tiles. wideBytes is the number of their bytes
// that stay in the L1 cache while the rows pass.
const (
	wideRows  = 8
	wideTiles = 3
	wideBytes = 14 << 10
)

// wide multiplies strips of eight rows with three tiles, by a kernel that adds to out if more
// is set, as long as there are any: all of them with some groups, which stay in the L1 cache, and
// then with the next. It returns the number of rows and the end of the tiles.
func (c *integerCall) wide(kernel func(*integerArgs), from, to int) (rows, end int) {
	rows, end = c.a.rows/wideRows*wideRows, from
	panel := max(1, wideBytes/(wideTiles*c.w.block))
	for ; end+wideTiles <= to; end += wideTiles {
		for g := 0; g < c.w.groups; g += panel {
			c.args.groups, c.args.more = min(panel, c.w.groups-g), min(g, 1)
			for r := 0; r < rows; r += wideRows {
				c.run(kernel, r, end, g, from)
			}
		}
	}
	c.args.groups = c.w.groups
	return rows, end
}

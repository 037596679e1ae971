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
	integerFormats
)

// Types of scales, as the kernels tell them apart.
const (
	scaleBF16 = iota
	scaleF16
	scaleF32
	scaleZero    // F16, biases being a multiple of them
	scaleFactors // in the tail of a superblock
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
	plane     int // where the second plane begins in a block
	codes     int // where the scales begin in a block
	scale     int // type of scales
	outTile   int // bytes from tile to tile of out

	zero    float32        // with scaleZero, and for 6 bits scaleFactors: biases in scales
	per     int            // with scaleFactors: groups of a superblock
	tail    int            // bytes from its last group to the next one
	decoded unsafe.Pointer // its scales and biases as kernels decode them, see Scratch

	// For AMX, which takes strips by row.
	config   [64]byte       // shapes of the tiles
	format   int            // of the weight
	rows     int            // of a strip
	strips   int            // at least one
	more     int            // 1: out has the sums of the groups before
	panel    int            // groups of a panel of many strips
	actRow   int            // bytes from row to row of codes
	actGroup int            // bytes from group to group
	actStrip int            // bytes from strip to strip
	actTail  int            // where the scales begin in a group
	slots    unsafe.Pointer // two panels of two tiles, each amxSlotBytes from the one before
	slot     int            // bytes of one
	slotTail int            // where the scales begin in a slot
	products unsafe.Pointer // of a panel

	// Where the AMX kernels are. No pointers: they may be behind the end.
	unpack             uintptr // code that unpacks a block
	factors            uintptr // code that decodes factors; 0: there are none
	factorBytes        int     // of a group, decoded
	factorAt           uintptr // of the next group of the first tile; 1,024 bytes further of the second
	superLeft          int     // groups of the superblock that are still to be unpacked
	second, outSecond  int     // bytes from one tile to the other; 0: there is none
	pairBlock, pairOut uintptr // of the first tile
	pairsLeft          int     // of tiles to multiply
	pairsNext          int     // of tiles to unpack
	nextBlock          uintptr // first block of the panel that is unpacked
	nextSlots          uintptr
	nextLeft           int // groups of these tiles, from nextBlock on
	nextGroups         int
	unpackLeft         int     // of nextGroups
	panelSlots         uintptr // of the panel that is multiplied
	panelActs          uintptr
	panelGroups        int
	panelMore          int // 1: out has the sums of the panels before
	groupsLeft         int // after this panel
	lag                int // turns before the first is added
	actSkip            int // bytes from the end of a strip's groups to the next strip's
	stripsLeft         int // after these
	stripsNow          int
	stripActs          uintptr
	stripOut           uintptr
}

// integerFormat is the format of w as an index.
func (w *Weight) integerFormat() int {
	switch {
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

// set fills in what is the same for all rows and tiles of a weight.
func (args *integerArgs) set(w *Weight) {
	args.groups, args.steps = w.groups, w.group/16
	args.block, args.tileBytes, args.codes = w.block, w.tileBytes(), w.codes
	args.zero, args.per, args.tail = w.zero, w.per, w.tail
	args.plane = w.group * Tile / 8 * planes(w.bits)[0]
	switch {
	case w.per > 1:
		args.scale = scaleFactors
	case w.zero != 0:
		args.scale = scaleZero
	case w.scale == dtype.F16:
		args.scale = scaleF16
	case w.scale == dtype.F32:
		args.scale = scaleF32
	default:
		args.scale = scaleBF16
	}
}

// integerStrips multiplies strip after strip, by kernels indexed by the number of rows less
// one, the last of them for more rows, too.
func integerStrips(kernels []func(*integerArgs), out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	if w.groups == 0 || from == to {
		return
	}
	args, rows := &s.integer, a.OutRows()
	args.set(w)
	args.outTile = rows * Tile * 4
	args.decoded = unsafe.Pointer(&s.factors)
	step := to - from
	if rows > a.height {
		step = 8 // stay in the cache while all strips pass
	}
	for t := from; t < to; t += step {
		args.tiles = min(step, to-t)
		blocks := w.Data[(n*w.tiles+t)*args.tileBytes:][:args.tiles*args.tileBytes]
		args.weights = unsafe.Pointer(unsafe.SliceData(blocks))
		for r := 0; r < rows; r += a.height {
			args.acts = unsafe.Pointer(unsafe.SliceData(a.strip(r)))
			args.out = unsafe.Pointer(&out[((t-from)*rows+r)*Tile])
			kernels[min(a.inStrip(r), len(kernels))-1](args)
		}
	}
	args.weights, args.acts, args.out, args.decoded = nil, nil, nil, nil
}

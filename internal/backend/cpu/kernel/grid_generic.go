package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Weights of grid formats are expanded before they are multiplied: some superblocks at a time, into
// memory that stays in the cache, where kernels for superblocks multiply them. An expanded superblock has
// 16 groups of 16 columns with codes of 8 bits in the layout of integers, offset by -dtype.GridMiddle, and
// a tail: 16 scales of float32, and factors, byte 16g+r that of row r, group g.

const (
	gridGroup     = 16
	gridPer       = 256 / gridGroup
	expandedCodes = 256 * Tile
	expandedTail  = 4*Tile + gridPer*Tile
	expandedSize  = expandedCodes + expandedTail
)

// expandArgs are the operands of a kernel that expands superblocks of one tile which follow one another.
type expandArgs struct {
	dst, src unsafe.Pointer
	table    unsafe.Pointer // of the expander
	count    int            // superblocks, at least one
	signs    [64]uint64     // signs of a superblock: number 8*(4*half+n)+h is of columns 32h+8n+4*half to 3 more

	indices [64 * Tile]uint16 // of a superblock, high bits included, as low bits lie
}

// expander expands superblocks of a format.
type expander struct {
	run   func(a *expandArgs)
	table []byte
}

// expanders are those of one instruction set, by format from dtype.IQ1S on; nil: portable code.
type expanders *[len(gridPlaces)]expander

// gridExpanders are kernels that take the tables of dtype.
func gridExpanders(kernels [len(gridPlaces)]func(a *expandArgs)) expanders {
	var by [len(gridPlaces)]expander
	for i, run := range kernels {
		by[i] = expander{run, (dtype.IQ1S + dtype.Format(i)).GridTable()}
	}
	return &by
}

// layGrid lays out a grid format.
func (w *Weight) layGrid() {
	w.bits, w.group, w.per = 8, gridGroup, gridPer
	w.codes, w.tail = 0, w.places().Size
}

// expansion is the form of w after it is expanded, without Data.
func (w *Weight) expansion() Weight {
	e := *w
	e.expanded, e.factors, e.count, e.zero = true, FactorsGrid, 1, -dtype.GridMiddle
	e.codes, e.block, e.tail = gridGroup*Tile, gridGroup*Tile, expandedTail
	return e
}

// expand expands superblocks [first, end) of tiles [from, to) of matrix n, and returns them as a weight of
// these tiles that is valid until the next call with s.
func (s *Scratch) expand(w *Weight, n, from, to, first, end int, by expanders) *Weight {
	s.expanded = w.expansion()
	e := &s.expanded
	e.groups, e.tiles = (end-first)*gridPer, to-from
	e.cols, e.rows = e.groups*gridGroup, e.tiles*Tile
	s.grid = aligned(s.grid, e.Size())
	e.Data = s.grid
	for t := from; t < to; t++ {
		src, dst := w.tile(n, t)[first*w.tail:end*w.tail], e.tile(0, t-from)
		if by == nil {
			for ; len(src) > 0; src, dst = src[w.tail:], dst[expandedSize:] {
				w.expandSuper(dst, src)
			}
			continue
		}
		a := &s.expandArgs
		a.dst, a.src = unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
		x := &by[w.format-dtype.IQ1S]
		a.table = unsafe.Pointer(unsafe.SliceData(x.table))
		a.count = end - first
		x.run(a)
		a.dst, a.src, a.table = nil, nil, nil
	}
	return e
}

// expandSuper expands a superblock. It is the twin of the kernels.
func (w *Weight) expandSuper(dst, super []byte) {
	var q [256]byte
	tail := dst[expandedCodes:][:expandedTail]
	for r := range Tile {
		w.gridCodes(&q, super, r)
		for v := range len(q) / 4 {
			copy(dst[64*v+4*r:][:4], q[4*v:])
		}
		binary.LittleEndian.PutUint32(tail[4*r:], math.Float32bits(w.gridScale(super, r)))
		for g := range gridPer {
			tail[4*Tile+Tile*g+r] = w.gridFactor(super, r, g)
		}
	}
}

// gridFactors writes the scales of an expanded superblock with this tail, [group, row].
func (w *Weight) gridFactors(dst []float32, tail []byte) {
	var d [Tile]float32
	dtype.ToF32(d[:], dtype.F32, tail[:4*Tile])
	for i, f := range tail[4*Tile:][:gridPer*Tile] {
		dst[i] = d[i%Tile] * float32(f)
	}
}

// gridRow is RowFloats for a grid format.
func (w *Weight) gridRow(dst []float32, n, r int) {
	var q [256]byte
	for i := range w.groups / w.per {
		super := w.super(n, r/Tile, i)
		w.gridCodes(&q, super, r%Tile)
		d := w.gridScale(super, r%Tile)
		for g := range gridPer {
			s := d * float32(w.gridFactor(super, r%Tile, g))
			b := -dtype.GridMiddle * s
			out := dst[(i*gridPer+g)*gridGroup:][:gridGroup]
			for k, x := range q[g*gridGroup:][:gridGroup] {
				out[k] = float32(s*float32(x)) + b
			}
		}
	}
}

// gridRun is how many superblocks of two tiles are expanded before they are multiplied: they stay in the first
// cache, with the codes of a strip.
const gridRun = 2

// gridStrips multiplies with w, a weight of a grid format, strip after strip: see integerStrips.
func gridStrips(kernels []func(*integerArgs), by expanders, out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	args, supers, rows := &s.integer, w.groups/w.per, a.OutRows()
	s.expanded = w.expansion()
	args.set(&s.expanded)
	args.decoded = s.decoded()
	args.outTile = rows * Tile * 4
	for t := from; t < to; t += 2 {
		args.tiles = min(2, to-t)
		for i := 0; i < supers; i += gridRun {
			args.supers, args.more = min(gridRun, supers-i), min(i, 1)
			args.groups = args.supers * w.per
			e := s.expand(w, n, t, t+args.tiles, i, i+args.supers, by)
			args.weights = unsafe.Pointer(unsafe.SliceData(e.Data))
			for r := 0; r < rows; r += a.height {
				m := a.inStrip(r)
				args.acts = unsafe.Pointer(&a.strip(r)[i*a.stride(m)])
				args.out = unsafe.Pointer(&out[(t-from)*rows*Tile+r*Tile])
				kernels[m-1](args)
			}
		}
	}
	*args = integerArgs{}
}

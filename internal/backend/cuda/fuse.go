package cuda

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// A kernel of one row takes less time than the next one takes to begin, and keeps the one after that from loading
// weights. So while a pass is recorded, a product of one row takes over the work of recorded kernels before
// it: kernels/row.cuh normalizes and quantizes the row in every block, kernels/few.cuh gates the results of two
// matrices.

// normed is an operation that norms rows and leaves them as codes.
type normed struct {
	dst, x, gain backend.Tensor
	eps          float32
	codes        quantized
}

// gated is an operation that gates rows and leaves them as codes.
type gated struct {
	dst, gate, up backend.Tensor
	by            backend.Activation
	codes         quantized
}

// joint is products that one kernel multiplies, with its row if it rounds that itself.
type joint struct {
	list []product
	row  *rowInput
}

// rowInput is struct Row of kernels/row.cuh: without x it comes as codes.
type rowInput struct {
	x, gain, dst driver.Ptr
	cols         int
	eps          float32
	codes        quantized
}

// Kernels of rowInput, behind the module's name.
const rowKernel, gateKernel = ".row_4_64", ".gated_4_64"

// wideRow is from how many columns on it pays to norm a row in every block of a product that all of the device is
// busy with; narrow ones leave multiprocessors idle anyway.
const wideRow = 4096

// maxRowCols is how many columns a kernel has registers for that norms and rounds a row.
const maxRowCols = 6144

func (r *rowInput) param() []byte {
	return raw(rowParam{x: r.x, gain: r.gain, dst: r.dst, codes: r.codes.codes, tails: r.codes.tails, cols: i32(r.cols), tailRows: i32(r.codes.tailRows), eps: r.eps})
}

// shared is the shared memory of a row in bytes.
func (r *rowInput) shared() int {
	blocks := (r.cols/64 + 7) &^ 7
	return 4*r.cols + (8*64/r.codes.group+64)*blocks
}

// beside is the shared memory of a block that has a row and chunks of weights with blocks of block bytes.
func (r *rowInput) beside(block int) int { return 8*2*fewGroups*block + r.shared() }

// fits reports whether a kernel can read the row as vectors, and has registers for it.
func (r *rowInput) fits() bool {
	return r.cols <= maxRowCols && r.cols%64 == 0 && (r.x|r.gain|r.dst)%16 == 0
}

// mark records what the last operation is.
func (p *passes) mark(of any) {
	if r := p.recording; r != nil && len(r.ops) > 0 {
		r.ops[len(r.ops)-1].of = of
	}
}

// before is the operation of the pass that is i before the next one, or nil.
func (b *Backend) before(i int) *operation {
	r := b.passes.recording
	if r == nil || b.err != nil || len(r.ops) < i {
		return nil
	}
	return &r.ops[len(r.ops)-i]
}

// undo removes the last n operations.
func (b *Backend) undo(n int) {
	r := b.passes.recording
	r.ops = r.ops[:len(r.ops)-n]
}

// writes reports whether one of the products writes to the memory of t.
func writes(list []product, t backend.Tensor) bool {
	for i := range list {
		if list[i].mem == nil || list[i].mem == t.Mem {
			return true
		}
	}
	return false
}

// rowKernel is the kernel for products of one row with w that norms and rounds it, and the shared memory of a block.
func (w *weight) rowKernel(row *rowInput) (string, int) {
	if w.super() {
		return w.oneKernel(row)
	}
	return w.forms().few + rowKernel, row.beside(w.Block)
}

// takeRow takes the norm of the products' row over from the previous operation, and returns nil if there is none
// or it does not pay. If that operation is a gate, the products before it take that over.
func (b *Backend) takeRow(list []product) *rowInput {
	last, p := b.before(1), &list[0]
	if last == nil || p.rows != 1 || p.in.group == 0 || p.jobs != 0 {
		return nil
	}
	switch of := last.of.(type) {
	case *normed:
		row := rowInput{b.at(of.x), b.at(of.gain), b.at(of.dst), of.x.Cols, of.eps, of.codes}
		pays := row.cols >= wideRow || tilesOf(list) <= b.info.Multiprocessors
		if of.codes.codes != p.in.codes || !pays || !row.fits() || of.dst.Mem == of.x.Mem || writes(list, of.x) || writes(list, of.dst) || !b.allows(p.w.rowKernel(&row)) {
			return nil
		}
		b.undo(1)
		return &row
	case *gated:
		if of.codes.codes == p.in.codes {
			b.takeGate(of)
		}
	}
	return nil
}

// takeGate has the two products before a gate, the last operation, gate as well, and leave that as codes.
func (b *Backend) takeGate(g *gated) {
	op := b.before(2)
	if op == nil {
		return
	}
	of, ok := op.of.(*joint)
	if !ok || len(of.list) != 2 || of.list[0].rows != 1 {
		return
	}
	gate, up, dst := of.list[0], of.list[1], b.at(g.dst)
	wrong := gate.dst != b.at(g.gate) || up.dst != b.at(g.up) || gate.dst == up.dst || gate.bias|up.bias != 0 || gate.add || up.add || gate.only|up.only != 0
	if wrong || gate.w.Rows() != up.w.Rows() || gate.in.codes == g.codes.codes || dst%16 != 0 {
		return
	}
	if wide := gate.w.Rows(); gate.w.super() {
		if g.by == backend.SiLU && wide%superCols == 0 && g.codes.group == superCols && (gate.dst|up.dst)%16 == 0 {
			b.undo(2)
			b.oneSuper(of.list, *of.row, g)
		}
		return
	}
	row := &rowInput{cols: gate.w.Cols(), codes: gate.in.quantized}
	if of.row != nil {
		*row = *of.row
		row.codes = quantized{rounding: gate.in.rounding} // no other operation can use them
	}
	if !pairs(of.list) || row.cols < wideRow || !row.fits() || g.codes.rounding != gate.in.rounding || up.w.Rows()%64 != 0 ||
		!b.allows(gate.w.forms().few+gateKernel, row.beside(gate.w.Block)) {
		return
	}
	b.undo(2)
	b.gate(gate, up, g.by, dst, row, g.codes, 0, pickParam{})
}

// pairs reports whether two products can be those of a gate: tile by tile, and with a chunk for every warp.
func pairs(list []product) bool {
	gate, up := &list[0], &list[1]
	return gate.w.Layout == up.w.Layout && gate.w.Rows() == up.w.Rows() && gate.only|up.only == 0 && gate.w.Layout.Groups > 3*fewGroups
}

// fewGroups is how many groups, or blocks of several groups, make a chunk of few.
const fewGroups = 8

// fewKernel is the kernel for up to packedRows rows, and its shape: four rows in groups of 16 have chunks of half as many blocks.
func fewKernel(w *weight, rows int) (string, relayForm) {
	form := relayForm{1, fewGroups, 2}
	if w.Number == dtype.F8E4M3 && rows > 2 {
		form = relayForm{1, fewGroups / 2, 4}
	}
	return fmt.Sprintf("%s.few_%d_%d_%d", w.forms().few, w.Bits, w.Group, []int{1, 2, 4, 4}[rows-1]), form
}

// few launches products of up to packedRows rows.
func (b *Backend) few(list []product) {
	w := list[0].w
	name, form := fewKernel(w, list[0].rows)
	row := b.takeRow(list)
	if row != nil {
		b.teams(w.forms().few+rowKernel, row.beside(w.Block), form.groups, list, row.param())
	} else {
		b.teams(name, form.shared(&w.Layout), form.groups, list)
	}
	if b.passes.recording != nil {
		b.passes.mark(&joint{slices.Clone(list), row})
	}
}

// gate launches two products of one row, and the activation by of the first times the second, as codes too if there is a
// place for them. With jobs they are of experts, that pick chooses or that are listed.
func (b *Backend) gate(gate, up product, by backend.Activation, dst driver.Ptr, row *rowInput, codes quantized, jobs int, pick pickParam) {
	both := up
	both.dst = dst
	for _, p := range []*product{&gate, &up} { // the gated result may go to the destination of one of them
		if p.dst == dst {
			p.dst = 0
		}
	}
	l := &gate.w.Layout
	shared := row.beside(l.Block)
	arrived := driver.Ptr(0)
	if codes.group > 0 {
		arrived = b.zeros(&b.gates, up.w.Rows()/64*4)
	}
	name := gate.w.forms().few + gateKernel
	blocks := min(b.occupancy(name, 256, shared), gate.tiles)
	b.launchAs(name, sizes(gate, up), grid{x: blocks, threads: 256, shared: shared}, gate.param(), partsOf([]product{gate, up, both}, l.Tiles), 2, row.param(),
		raw(gatesParam{arrived: arrived, codes: codes.codes, tails: codes.tails, tailRows: i32(codes.tailRows), jobs: i32(jobs), gelu: b32(by == backend.GELUTanh), pick: pick}))
}

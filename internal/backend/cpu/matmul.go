package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// matmulOp computes products of one input. Its parts are the tiles of all products' weights, counted through. For many rows a
// part is a pair of tiles and a block of rows; those of a pair follow one another.
type matmulOp struct {
	b        *Backend
	x        backend.Tensor
	products []backend.Product
	matrix   int // of the stack
	each     int // tiles of a part
	acts     []quantizedRows
	floats   []floatRows
	put      putOp
}

// quantizedRows is the rows of an input as integers, transformed for some weights.
type quantizedRows struct {
	kernel.Activations
	input *kernel.Input
}

// floatRows is the rows of an input, transformed for weights that multiply floats.
type floatRows struct {
	input *kernel.Input
	x     backend.Tensor
}

// MatMul multiplies x with each product's weight.
func (b *Backend) MatMul(x backend.Tensor, products ...backend.Product) {
	for i := range products {
		if p := &products[i]; p.Each {
			b.each(x, p)
		}
	}
	b.product(x, 0, products)
}

// product multiplies x with matrix n of each product's weight.
func (b *Backend) product(x backend.Tensor, n int, products []backend.Product) {
	op := &b.matmul
	op.b, op.x, op.matrix = b, x, n
	op.products = append(op.products[:0], products...)
	op.acts, op.floats = op.acts[:0], op.floats[:0]
	if op.each = 1; x.Rows >= pairRows {
		op.each = 2
	}
	parts := 0
	for i := range products {
		p := &products[i]
		if p.Each {
			continue // computed by itself
		}
		backend.CheckProduct(x, p)
		w := p.W.(*kernel.Weight)
		op.lay(w)
		n, _ := op.partsOf(p, w)
		parts += n
	}
	if x.Rows > 0 && parts > 0 {
		op.fill()
		if op.each > 1 {
			b.pool.runTapered(op, parts)
		} else {
			b.pool.run(op, parts, 1)
		}
	}
}

// pairRows is from how many rows on a part of a product is a pair of tiles. Kernels of AMX and AVX-512 compute pairs, and an odd
// tile at the end of a thread's part takes longer.
const pairRows = 64

// partsOf is how many parts a product has, and of how many blocks of rows.
func (op *matmulOp) partsOf(p *backend.Product, w *kernel.Weight) (n, blocks int) {
	blocks = 1
	if op.each > 1 && w.Integer() {
		n := op.activations(w).AtOnce()
		blocks = (op.x.Rows + n - 1) / n
	}
	return (tilesOf(p, w) + op.each - 1) / op.each * blocks, blocks
}

// tilesOf is how many tiles of w a product computes.
func tilesOf(p *backend.Product, w *kernel.Weight) int {
	if p.Only != nil {
		return len(p.Only)
	}
	return w.Tiles()
}

func (op *matmulOp) part(worker, from, to int) {
	for i := range op.products {
		p := &op.products[i]
		if p.Each {
			continue
		}
		w := p.W.(*kernel.Weight)
		n, blocks := op.partsOf(p, w)
		first, end, rows := max(from, 0), min(to, n), op.x.Rows
		if blocks > 1 {
			rows = op.activations(w).AtOnce()
		}
		for b := 0; b < blocks && first < end; b++ { // its rows stay in the cache while the tiles pass
			a, z := (first-b+blocks-1)/blocks, (end-b+blocks-1)/blocks
			if a < z {
				op.some(worker, p, w, b*rows, min((b+1)*rows, op.x.Rows), a*op.each, min(z*op.each, tilesOf(p, w)))
			}
		}
		from, to = from-n, to-n
	}
}

// some computes tiles [from, to) of a product's list for rows [first, last), neighbors together.
func (op *matmulOp) some(worker int, p *backend.Product, w *kernel.Weight, first, last, from, to int) {
	if p.Only == nil {
		op.rowTiles(worker, *p, w, first, last, from, to)
		return
	}
	for list := p.Only[from:to]; len(list) > 0; {
		n := 1
		for n < len(list) && list[n] == list[0]+int32(n) {
			n++
		}
		op.rowTiles(worker, *p, w, first, last, int(list[0]), int(list[0])+n)
		list = list[n:]
	}
}

// Bounds of one call of a kernel: assembly cannot be interrupted, and the garbage collector
// waits for it; and the results should be in the cache when they go to their rows.
const (
	blocksAtOnce  = 4096
	resultsAtOnce = 64 << 10
)

// tiles computes output tiles [from, to) of one product for all rows of the input.
func (op *matmulOp) tiles(worker int, p backend.Product, w *kernel.Weight, from, to int) {
	op.rowTiles(worker, p, w, 0, op.x.Rows, from, to)
}

// rowTiles computes output tiles [from, to) of one product for rows [first, last).
func (op *matmulOp) rowTiles(worker int, p backend.Product, w *kernel.Weight, first, last, from, to int) {
	if op.x.Rows == 0 || w.Groups() == 0 {
		return
	}
	if !w.Integer() {
		op.block(worker, p, w, nil, from, to)
		return
	}
	a, s := op.activations(w), &op.b.workers[worker]
	n := a.AtOnce()
	for r := first; r < last; r += n {
		end := min(r+n, last)
		q := p
		s.rows, q.Dst = a.Range(r, end), p.Dst.RowRange(r, end)
		op.block(worker, q, w, &s.rows, from, to)
	}
}

// block computes output tiles [from, to) of one product for rows that stay in the cache while the
// tiles pass: quantized ones, or if there are none those of the input.
func (op *matmulOp) block(worker int, p backend.Product, w *kernel.Weight, a *kernel.Activations, from, to int) {
	set, s, m := op.b.isa, &op.b.workers[worker], op.x.Rows
	var x kernel.Rows
	if a == nil {
		x = rowsOf(op.rows(w))
	} else {
		m = a.OutRows()
	}
	step := max(2, min(blocksAtOnce/w.Groups(), resultsAtOnce/(m*tile))&^1)
	for ; from < to; from += step {
		end := min(from+step, to)
		s.out = kernel.Grow(s.out, (end-from)*m*tile)
		if a != nil {
			set.Integer(s.out, w, op.matrix, from, end, a, &s.kernel)
		} else {
			set.Float(s.out, w, op.matrix, from, end, x, &s.kernel)
		}
		set.Scatter(rowsOf(p.Dst), p.Add, from, s.out, m, &s.kernel)
		if p.Bias.Mem != nil {
			a, b := from*tile, min(end*tile, w.Rows())
			for r := range p.Dst.Rows {
				set.Vector.Add(row(p.Dst, r)[a:b], row(p.Bias, 0)[a:b])
			}
		}
	}
}

// activations finds the input quantized for a weight.
func (op *matmulOp) activations(w *kernel.Weight) *kernel.Activations {
	for i := range op.acts {
		if a := &op.acts[i]; a.input == w.Input && a.Fits(w) {
			return &a.Activations
		}
	}
	return nil
}

// rows finds the input for a weight that multiplies floats.
func (op *matmulOp) rows(w *kernel.Weight) backend.Tensor {
	for i := range op.floats {
		if op.floats[i].input == w.Input {
			return op.floats[i].x
		}
	}
	return op.x
}

// lay prepares memory for the input in the form of a weight, for all weights with that form. The
// rows follow, see set.
func (op *matmulOp) lay(w *kernel.Weight) {
	if w.Integer() {
		if op.activations(w) != nil {
			return
		}
		n := len(op.acts)
		op.acts = extend(op.acts)
		op.acts[n].input = w.Input
		op.b.isa.Lay(&op.acts[n].Activations, op.x.Rows, w)
		return
	}
	if w.Input == nil || op.rows(w).Mem != op.x.Mem {
		return
	}
	n := len(op.floats)
	op.floats = extend(op.floats)
	op.floats[n] = floatRows{w.Input, op.b.workspace(op.floats[n].x, op.x.Rows, op.x.Cols)}
}

// extend is list with one more element, which keeps its memory from before where there was one.
func extend[T any](list []T) []T {
	if n := len(list); n < cap(list) {
		return list[:n+1]
	}
	var zero T
	return append(list, zero)
}

// set sets row r of the input. x is that row, transformed.
func (op *matmulOp) set(r int, x func(*kernel.Input) []float32) {
	for i := range op.forms() {
		op.setForm(i, r, x(op.form(i)))
	}
}

// forms is the number of forms of the input, form the transformation of form i.
func (op *matmulOp) forms() int { return len(op.acts) + len(op.floats) }

func (op *matmulOp) form(i int) *kernel.Input {
	if i < len(op.acts) {
		return op.acts[i].input
	}
	return op.floats[i-len(op.acts)].input
}

// setForm sets row r of form i.
func (op *matmulOp) setForm(i, r int, x []float32) {
	if i < len(op.acts) {
		op.b.isa.Put(&op.acts[i].Activations, r, x)
		return
	}
	copy(row(op.floats[i-len(op.acts)].x, r), x)
}

// quantizeAlone is the number of numbers that one thread quantizes in the time of waking the
// others, transformAlone of those that it transforms.
const (
	quantizeAlone  = 16 << 10
	transformAlone = 2 << 10
)

// transformRows is how many rows are transformed together.
const transformRows = 16

// fill sets all rows.
func (op *matmulOp) fill() {
	grain := max(1, quantizeAlone/op.x.Cols)
	for i := range op.forms() {
		if op.form(i) != nil {
			grain = min(grain, max(1, transformAlone/op.x.Cols))
		}
	}
	if op.x.Rows >= 2*transformRows {
		grain = max(grain, transformRows)
	}
	op.put.op = op
	op.b.pool.run(&op.put, op.forms()*op.x.Rows, grain)
}

// putOp sets rows of a product's input. A part is a row of one of its forms.
type putOp struct{ op *matmulOp }

func (p *putOp) part(worker, from, to int) {
	op := p.op
	for from < to {
		form, r := from/op.x.Rows, from%op.x.Rows
		n := min(to-from, op.x.Rows-r, transformRows)
		x, in := op.x.RowRange(r, r+n), op.form(form)
		for i := range n {
			if in == nil {
				op.setForm(form, r+i, row(x, i))
				continue
			}
			op.setForm(form, r+i, op.b.transformed(worker, in, x, i))
		}
		from += n
	}
}

// transformed is row i of a few, all of which are transformed with the first.
func (b *Backend) transformed(worker int, in *kernel.Input, x backend.Tensor, i int) []float32 {
	s := &b.workers[worker]
	if i == 0 {
		s.turned = kernel.Grow(s.turned, x.Rows*x.Cols)
		b.isa.TransformRows(s.turned, rowsOf(x), in, &s.kernel)
	}
	return s.turned[i*x.Cols:][:x.Cols]
}

// transform is a row as in has it, in memory of the worker that lasts until its next call.
func (b *Backend) transform(worker int, in *kernel.Input, x []float32) []float32 {
	if in == nil {
		return x
	}
	s := &b.workers[worker]
	s.turned = kernel.Grow(s.turned, len(x))
	b.isa.Transform(s.turned, x, in)
	return s.turned
}

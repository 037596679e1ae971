package cpu

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// matmulOp computes products of one input. Its parts are the tiles of all products'
// weights, counted through.
type matmulOp struct {
	b        *Backend
	x        backend.Tensor
	products []backend.Product
	matrix   int // of the stack
	acts     []kernel.Activations
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
	op.acts = op.acts[:0]
	tiles := 0
	for _, p := range products {
		if p.Each {
			continue // computed by itself
		}
		w := p.W.(*kernel.Weight)
		if x.Cols != w.Cols() || p.Dst.Cols != w.Rows() || p.Dst.Rows != x.Rows || n >= w.Count() {
			panic(fmt.Sprintf("cpu: product of %d×%d and %d×%d into %d×%d", x.Rows, x.Cols, w.Rows(), w.Cols(), p.Dst.Rows, p.Dst.Cols))
		}
		if p.Bias.Mem != nil && (p.Bias.Rows != 1 || p.Bias.Cols != w.Rows()) {
			panic(fmt.Sprintf("cpu: bias of %d×%d for %d columns", p.Bias.Rows, p.Bias.Cols, w.Rows()))
		}
		if w.Integer() {
			op.quantize(w)
		}
		tiles += tilesOf(&p, w)
	}
	if x.Rows > 0 && tiles > 0 {
		b.pool.run(op, tiles, 1)
	}
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
		n := tilesOf(p, w)
		if from < n && to > 0 {
			op.some(worker, p, w, max(from, 0), min(to, n))
		}
		from, to = from-n, to-n
	}
}

// some computes tiles [from, to) of those that a product asks for, neighbors together.
func (op *matmulOp) some(worker int, p *backend.Product, w *kernel.Weight, from, to int) {
	if p.Only == nil {
		op.tiles(worker, *p, w, from, to)
		return
	}
	for list := p.Only[from:to]; len(list) > 0; {
		n := 1
		for n < len(list) && list[n] == list[0]+int32(n) {
			n++
		}
		op.tiles(worker, *p, w, int(list[0]), int(list[0])+n)
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
	if op.x.Rows == 0 || w.Groups() == 0 {
		return
	}
	if !w.Integer() {
		op.block(worker, p, w, nil, from, to)
		return
	}
	a, s := op.activations(w), &op.b.workers[worker]
	n := a.AtOnce()
	for r := 0; r < op.x.Rows; r += n {
		end := min(r+n, op.x.Rows)
		q := p
		s.rows, q.Dst = a.Range(r, end), p.Dst.RowRange(r, end)
		op.block(worker, q, w, &s.rows, from, to)
	}
}

// block computes output tiles [from, to) of one product for rows that stay in the cache while the
// tiles pass: quantized ones, or if there are none those of the input.
func (op *matmulOp) block(worker int, p backend.Product, w *kernel.Weight, a *kernel.Activations, from, to int) {
	set, s, m := op.b.isa, &op.b.workers[worker], op.x.Rows
	if a != nil {
		m = a.OutRows()
	}
	step := max(2, min(blocksAtOnce/w.Groups(), resultsAtOnce/(m*tile))&^1)
	for ; from < to; from += step {
		end := min(from+step, to)
		s.out = kernel.Grow(s.out, (end-from)*m*tile)
		if a != nil {
			set.Integer(s.out, w, op.matrix, from, end, a, &s.kernel)
		} else {
			set.Float(s.out, w, op.matrix, from, end, rowsOf(op.x), &s.kernel)
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
		if op.acts[i].Fits(w) {
			return &op.acts[i]
		}
	}
	panic("cpu: input not quantized")
}

// quantize prepares the input for a weight, and all that it fits.
func (op *matmulOp) quantize(w *kernel.Weight) {
	for i := range op.acts {
		if op.acts[i].Fits(w) {
			return
		}
	}
	op.b.quantizer = quantizeOp{set: op.b.isa, a: op.lay(w), x: op.x}
	op.b.pool.run(&op.b.quantizer, op.x.Rows, max(1, quantizeAlone/op.x.Cols))
}

// lay adds activations for a weight, whose rows are yet to be quantized.
func (op *matmulOp) lay(w *kernel.Weight) *kernel.Activations {
	n := len(op.acts)
	if n < cap(op.acts) {
		op.acts = op.acts[:n+1] // reuse its memory
	} else {
		op.acts = append(op.acts, kernel.Activations{})
	}
	op.b.isa.Lay(&op.acts[n], op.x.Rows, w)
	return &op.acts[n]
}

// quantizeAlone is how many numbers one thread quantizes in the time it takes to call the
// others.
const quantizeAlone = 16 << 10

// quantizeOp quantizes rows.
type quantizeOp struct {
	set *kernel.Set
	a   *kernel.Activations
	x   backend.Tensor
}

func (op *quantizeOp) part(_, from, to int) {
	for r := from; r < to; r++ {
		op.set.Put(op.a, r, row(op.x, r))
	}
}

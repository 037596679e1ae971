package cpu

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// matmulOp computes products of one input. Its parts are the tiles of all products'
// weights, counted through.
type matmulOp struct {
	b        *Backend
	x        backend.Tensor
	products []backend.Product
	matrix   int // of the stack
	acts     []activations
}

// MatMul multiplies x with each product's weight.
func (b *Backend) MatMul(x backend.Tensor, products ...backend.Product) {
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
		w := p.W.(*weight)
		if x.Cols != w.cols || p.Dst.Cols != w.rows || p.Dst.Rows != x.Rows || n >= w.count {
			panic(fmt.Sprintf("cpu: product of %d×%d and %d×%d into %d×%d", x.Rows, x.Cols, w.rows, w.cols, p.Dst.Rows, p.Dst.Cols))
		}
		if w.integer() {
			op.quantize(w.group)
		}
		tiles += tilesOf(&p, w)
	}
	if x.Rows > 0 {
		b.pool.run(op, tiles, 1)
	}
}

// tilesOf is how many tiles of w a product computes.
func tilesOf(p *backend.Product, w *weight) int {
	if p.Only != nil {
		return len(p.Only)
	}
	return w.tiles
}

func (op *matmulOp) part(worker, from, to int) {
	for i := range op.products {
		p := &op.products[i]
		w := p.W.(*weight)
		n := tilesOf(p, w)
		if from < n && to > 0 {
			op.some(worker, p, w, max(from, 0), min(to, n))
		}
		from, to = from-n, to-n
	}
}

// some computes tiles [from, to) of those that a product asks for, neighbors together.
func (op *matmulOp) some(worker int, p *backend.Product, w *weight, from, to int) {
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
func (op *matmulOp) tiles(worker int, p backend.Product, w *weight, from, to int) {
	kernels, m := &op.b.isa.product, op.x.Rows
	s := &op.b.workers[worker]
	var a *activations
	if w.integer() {
		a = op.activations(w.group)
		m = a.outRows()
	}
	if m == 0 || w.groups == 0 {
		return
	}
	step := max(2, min(blocksAtOnce/w.groups, resultsAtOnce/(m*tile))&^1)
	for ; from < to; from += step {
		end := min(from+step, to)
		s.out = grow(s.out, (end-from)*m*tile)
		if a != nil {
			kernels.integer(s.out, w, op.matrix, from, end, a, s)
		} else {
			kernels.float(s.out, w, op.matrix, from, end, op.x, s)
		}
		op.b.scatter(p, from, s.out, m, s)
	}
}

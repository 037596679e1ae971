package cpu

import (
	"fmt"

	"github.com/foretoken/foretoken/backend"
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
			op.quantise(w.group)
		}
		tiles += w.tiles
	}
	if x.Rows > 0 {
		b.pool.run(op, tiles, 1)
	}
}

func (op *matmulOp) part(worker, from, to int) {
	for _, p := range op.products {
		w := p.W.(*weight)
		if from < w.tiles && to > 0 {
			op.tiles(worker, p, w, max(from, 0), min(to, w.tiles))
		}
		from, to = from-w.tiles, to-w.tiles
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

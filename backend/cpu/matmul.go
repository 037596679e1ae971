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
	b.pool.run(op, tiles, 1)
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

// tiles computes output tiles [from, to) of one product for all rows of the input.
func (op *matmulOp) tiles(worker int, p backend.Product, w *weight, from, to int) {
	m := op.x.Rows
	s := &op.b.workers[worker]
	for t := from; t < to; t++ {
		var out []float32 // [rows, tile]
		if w.integer() {
			out = integerTile(s, w, op.matrix, t, op.activations(w.group), m)
		} else {
			out = floatTile(s, w, op.matrix, t, op.x)
		}
		n := min(tile, w.rows-t*tile)
		for r := range m {
			dst := row(p.Dst, r)[t*tile:][:n]
			y := out[r*tile:][:n]
			if p.Add {
				for i := range dst {
					dst[i] += y[i]
				}
			} else {
				copy(dst, y)
			}
		}
	}
}

// activations are the input's rows as 8-bit integers: x ≈ scale*q, per group of columns.
type activations struct {
	group int
	q     []int8    // [rows, cols]
	scale []float32 // [rows, groups]
	sum   []float32 // [rows, groups]: sum of the group's q, times scale
}

// activations finds the input quantised for groups of that size.
func (op *matmulOp) activations(group int) *activations {
	for i := range op.acts {
		if op.acts[i].group == group {
			return &op.acts[i]
		}
	}
	panic("cpu: input not quantised")
}

// quantise prepares the input for weights with groups of that size, once per size.
func (op *matmulOp) quantise(group int) {
	for i := range op.acts {
		if op.acts[i].group == group {
			return
		}
	}
	n := len(op.acts)
	if n < cap(op.acts) {
		op.acts = op.acts[:n+1] // reuse its memory
	} else {
		op.acts = append(op.acts, activations{})
	}
	a := &op.acts[n]
	rows, cols := op.x.Rows, op.x.Cols
	groups := cols / group
	a.group = group
	a.q = grow(a.q, rows*cols)
	a.scale = grow(a.scale, rows*groups)
	a.sum = grow(a.sum, rows*groups)
	for r := range rows {
		x := row(op.x, r)
		for g := range groups {
			i := r*groups + g
			a.scale[i], a.sum[i] = quantiseGroup(a.q[r*cols+g*group:][:group], x[g*group:][:group])
		}
	}
}

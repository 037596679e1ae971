package cpu

import (
	"cmp"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// rowwiseOp applies one function to each row of a call, or to each piece of its rows.
type rowwiseOp struct {
	b       *Backend
	f       func(op *rowwiseOp, worker, r int)
	dst     backend.Tensor
	x, y, z backend.Tensor
	table   *kernel.Weight
	ids     []int32
	heads   int
	eps     float32
	scale   float32
}

func (op *rowwiseOp) part(worker, from, to int) {
	for r := from; r < to; r++ {
		op.f(op, worker, r)
	}
}

// Embed sets row i of dst to row ids[i] of the table, multiplied with factor.
func (b *Backend) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	w := table.(*kernel.Weight)
	if w.Input != nil {
		panic("cpu: embed with a table whose input is transformed")
	}
	backend.CheckEmbed(dst, table, ids)
	b.rowwise = rowwiseOp{b: b, f: embedRow, dst: dst, table: w, ids: ids, scale: cmp.Or(factor, 1)}
	b.pool.run(&b.rowwise, dst.Rows, 4)
}

func embedRow(op *rowwiseOp, _, r int) {
	dst := row(op.dst, r)
	op.table.RowFloats(dst, 0, int(op.ids[r]))
	multiply(dst, op.scale)
}

// multiply multiplies the numbers of x.
func multiply(x []float32, by float32) {
	if by == 1 {
		return
	}
	for i := range x {
		x[i] *= by
	}
}

// Gather sets row i of dst to row rows[i] of x.
func (b *Backend) Gather(dst, x backend.Tensor, rows []int32) {
	backend.CheckGather(dst, x, rows)
	for i, r := range rows {
		copy(row(dst, i), row(x, int(r)))
	}
}

// RMSNorm normalizes the rows of x.
func (b *Backend) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	backend.CheckRMSNorm(dst, x, gain)
	b.rowwise = rowwiseOp{b: b, f: normRow, dst: dst, x: x, y: gain, eps: eps}
	b.pool.run(&b.rowwise, x.Rows, 8)
}

func normRow(op *rowwiseOp, _, r int) {
	op.b.isa.Vector.WideNorm(row(op.dst, r), row(op.x, r), row(op.y, 0), op.eps)
}

// NormAdd adds the norms of the rows of x to those of dst.
func (b *Backend) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	backend.CheckNormAdd(dst, x, gain)
	b.rowwise = rowwiseOp{b: b, f: normAddRow, dst: dst, x: x, y: gain, eps: eps, scale: scale}
	b.pool.run(&b.rowwise, x.Rows, 8)
}

func normAddRow(op *rowwiseOp, worker, r int) {
	dst, s, vector := row(op.dst, r), &op.b.workers[worker], &op.b.isa.Vector
	s.sum = kernel.Grow(s.sum, len(dst))
	vector.WideNorm(s.sum, row(op.x, r), row(op.y, 0), op.eps)
	vector.Add(dst, s.sum)
	multiply(dst, op.scale)
}

// LayerNorm normalizes the rows of x.
func (b *Backend) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	backend.CheckLayerNorm(dst, x, gain, bias)
	b.rowwise = rowwiseOp{b: b, f: layerNormRow, dst: dst, x: x, y: gain, z: bias, eps: eps}
	b.pool.run(&b.rowwise, x.Rows, 8)
}

func layerNormRow(op *rowwiseOp, _, r int) {
	op.b.isa.Vector.LayerNorm(row(op.dst, r), row(op.x, r), row(op.y, 0), row(op.z, 0), op.eps)
}

// Rotate turns the heads of x.
func (b *Backend) Rotate(x, cos, sin backend.Tensor, heads int) {
	backend.CheckRotate(x, cos, sin, heads)
	b.rowwise = rowwiseOp{b: b, f: rotateRow, x: x, y: cos, z: sin, heads: heads}
	b.pool.run(&b.rowwise, x.Rows, 8)
}

func rotateRow(op *rowwiseOp, _, r int) {
	x, cos, sin := row(op.x, r), row(op.y, r), row(op.z, r)
	dim := 2 * len(cos)
	for h := range op.heads {
		op.b.isa.Vector.Rotate(x[h*dim:][:dim], cos, sin)
	}
}

// piece is how many columns of a row are computed at once where columns do not depend on one
// another, so that a single row is work for all threads.
const piece = 1024

// GLU sets dst to f(gate)*up.
func (b *Backend) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	backend.CheckGLU(dst, gate, up, f)
	b.rowwise = rowwiseOp{b: b, f: swigluPiece, dst: dst, x: gate, y: up}
	if f == backend.GELUTanh {
		b.rowwise.f = gegluPiece
	}
	b.pool.run(&b.rowwise, dst.Rows*pieces(dst.Cols), 2)
}

// pieces is how many pieces a row of cols columns has.
func pieces(cols int) int { return (cols + piece - 1) / piece }

// piece is the row and the columns of piece i.
func (op *rowwiseOp) piece(i int) (r, from, to int) {
	n := pieces(op.dst.Cols)
	r, from = i/n, i%n*piece
	return r, from, min(from+piece, op.dst.Cols)
}

func swigluPiece(op *rowwiseOp, _, i int) {
	r, from, to := op.piece(i)
	op.b.isa.Vector.SwiGLU(row(op.dst, r)[from:to], row(op.x, r)[from:to], row(op.y, r)[from:to])
}

func gegluPiece(op *rowwiseOp, worker, i int) {
	r, from, to := op.piece(i)
	op.b.geglu(worker, row(op.dst, r)[from:to], row(op.x, r)[from:to], row(op.y, r)[from:to])
}

// geglu sets dst to GELUTanh(gate)*up.
func (b *Backend) geglu(worker int, dst, gate, up []float32) {
	s := &b.workers[worker]
	s.sum = kernel.Grow(s.sum, len(dst))
	b.isa.Vector.GELUTanh(s.sum, gate)
	for i, x := range s.sum {
		dst[i] = x * up[i]
	}
}

// Cap sets the numbers of x to c·tanh(x/c).
func (b *Backend) Cap(x backend.Tensor, c float32) {
	backend.CheckCap(x, c)
	b.rowwise = rowwiseOp{b: b, f: capPiece, dst: x, scale: c}
	b.pool.run(&b.rowwise, x.Rows*pieces(x.Cols), 2)
}

// capPiece is exactmath.Cap32 with the sigmoids of an instruction set.
func capPiece(op *rowwiseOp, worker, i int) {
	r, from, to := op.piece(i)
	x, c, s := row(op.dst, r)[from:to], op.scale, &op.b.workers[worker]
	s.sum = kernel.Grow(s.sum, len(x))
	for i, v := range x {
		s.sum[i] = -2 * exactmath.Abs32(v) / c
	}
	op.b.isa.Vector.Sigmoids(s.sum, s.sum)
	s.keys = kernel.Grow(s.keys, len(x))
	for i := range s.keys {
		s.keys[i] = c
	}
	exactmath.AXPY32(s.keys, s.sum, -2*c)
	for i, v := range x {
		switch {
		case v < -math.MaxFloat32:
			continue
		case v == 0:
			v = 0 // without a sign
		}
		x[i] = math.Float32frombits(math.Float32bits(s.keys[i]) | math.Float32bits(v)&(1<<31)) // without a branch by the sign
	}
}

// GELU sets dst to x·Φ(x).
func (b *Backend) GELU(dst, x backend.Tensor, tanh bool) {
	backend.CheckGELU(dst, x)
	f := geluPiece
	if tanh {
		f = geluTanhPiece
	}
	b.rowwise = rowwiseOp{b: b, f: f, dst: dst, x: x}
	b.pool.run(&b.rowwise, dst.Rows*pieces(dst.Cols), 2)
}

func geluPiece(op *rowwiseOp, _, i int) {
	r, from, to := op.piece(i)
	op.b.isa.Vector.GELU(row(op.dst, r)[from:to], row(op.x, r)[from:to])
}

func geluTanhPiece(op *rowwiseOp, _, i int) {
	r, from, to := op.piece(i)
	op.b.isa.Vector.GELUTanh(row(op.dst, r)[from:to], row(op.x, r)[from:to])
}

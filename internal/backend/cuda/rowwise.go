package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// rowThreads is the threads of a block of rowwise.cu.
const rowThreads = 256

// pieces is the grid of kernels whose columns do not depend on one another: rows are the second
// dimension, cut where there are more than it may have.
func pieces(rows, cols int) grid {
	if rows == 0 || cols == 0 {
		return grid{}
	}
	return grid{x: min((cols+rowThreads-1)/rowThreads, 64), y: rows, threads: rowThreads}
}

// maxRows is how many rows the second dimension of a grid may have.
const maxRows = 65535

// atMost panics if n is above a limit of the kernels.
func atMost(limit, n int) {
	if n > limit {
		panic(fmt.Sprintf("cuda: %d is above the limit of %d", n, limit))
	}
}

// eachRows calls f for rows in as many pieces as grids need.
func eachRows(rows int, f func(from, to int)) {
	for from := 0; from < rows; from += maxRows {
		f(from, min(from+maxRows, rows))
	}
}

// Fill sets all numbers of dst.
func (b *Backend) Fill(dst backend.Tensor, x float32) {
	b.begin()
	eachRows(dst.Rows, func(from, to int) {
		t := dst.RowRange(from, to)
		b.launch("rowwise.fill", pieces(t.Rows, t.Cols), b.at(t), t.Stride, t.Cols, x)
	})
}

// copyRows copies rows of cols numbers of size bytes; strides are in numbers.
func (b *Backend) copyRows(to driver.Ptr, toStride int, from driver.Ptr, fromStride, rows, cols, size int) {
	if rows == 0 || cols == 0 {
		return
	}
	if toStride == cols && fromStride == cols || rows == 1 {
		b.queue(operation{what: "copy", to: to, from: from, bytes: int64(rows * cols * size)})
		return
	}
	kernel := map[int]string{1: "rowwise.copy1", 2: "rowwise.copy2", 4: "rowwise.copy4"}[size]
	eachRows(rows, func(first, last int) {
		y, x := to+driver.Ptr(first*toStride*size), from+driver.Ptr(first*fromStride*size)
		b.launch(kernel, pieces(last-first, cols), y, toStride, x, fromStride, cols)
	})
}

// Gather sets row i of dst to row rows[i] of x.
func (b *Backend) Gather(dst, x backend.Tensor, rows []int32) {
	backend.CheckGather(dst, x, rows)
	atMost(maxRows, dst.Rows)
	b.begin()
	call := b.lists(backend.Pass{Want: rows})
	gathered := func(c quantized) {
		b.launch(c.kernel("rowwise.gather"), groupsOf(dst, &c), b.at(dst), dst.Stride, b.at(x), x.Stride, x.Cols, call, raw(c.param()))
	}
	gathered(quantized{})
	b.passes.codable(dst, b.at(dst), 0, gathered)
}

// groupsOf is the grid of kernels that have a warp for some groups of columns of a row.
func groupsOf(t backend.Tensor, c *quantized) grid {
	if t.Rows == 0 || t.Cols == 0 {
		return grid{}
	}
	return grid{x: (t.Cols/c.columns() + 8) / 8, y: t.Rows, threads: 256}
}

// RMSNorm normalizes the rows of x.
func (b *Backend) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	backend.CheckRMSNorm(dst, x, gain)
	b.begin()
	b.rmsNorm(dst, x, gain, eps, quantized{})
	if b.passes.recording != nil { // elsewhere the function would be an allocation for nothing
		b.passes.codable(dst, b.at(dst), 0, func(c quantized) { b.rmsNorm(dst, x, gain, eps, c) })
	}
}

// rmsNorm is RMSNorm that writes codes, too.
func (b *Backend) rmsNorm(dst, x, gain backend.Tensor, eps float32, c quantized) {
	g := grid{x: x.Rows, threads: 512, shared: (4*x.Cols + 15) &^ 15}
	if x.Rows <= 48 && dst.Mem != x.Mem { // more would wait for a row than compute
		g.y = min(8, (x.Cols/c.columns()+15)/16)
	}
	b.launch(c.kernel("rowwise.rms_norm"), g, b.at(dst), dst.Stride, b.at(x), x.Stride, b.at(gain), x.Cols, eps, raw(c.param()))
	if c.group > 0 && b.passes.recording != nil {
		b.passes.mark(&normed{dst, x, gain, eps, c})
	}
}

// LayerNorm normalizes the rows of x.
func (b *Backend) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	backend.CheckLayerNorm(dst, x, gain, bias)
	b.begin()
	b.launch("rowwise.layer_norm", grid{x: x.Rows, threads: rowThreads}, b.at(dst), dst.Stride, b.at(x), x.Stride, b.at(gain), b.at(bias), x.Cols, eps)
}

// NormAdd adds the norms of the rows of x to those of dst.
func (b *Backend) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	backend.CheckNormAdd(dst, x, gain)
	b.begin()
	g := grid{x: x.Rows, threads: 512, shared: (4*x.Cols + 15) &^ 15}
	if x.Rows <= 48 && dst.Mem != x.Mem {
		g.y = min(8, (x.Cols+511)/512)
	}
	b.launch("rowwise.norm_add", g, b.at(dst), dst.Stride, b.at(x), x.Stride, b.at(gain), x.Cols, eps, scale)
}

// Cap sets the numbers of x to c·tanh(x/c).
func (b *Backend) Cap(x backend.Tensor, c float32) {
	backend.CheckCap(x, c)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		x := x.RowRange(from, to)
		b.launch("rowwise.cap", pieces(x.Rows, x.Cols), b.at(x), x.Stride, x.Cols, c)
	})
}

// GLU sets dst to f(gate)*up.
func (b *Backend) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	backend.CheckGLU(dst, gate, up, f)
	b.begin()
	b.glu(dst, gate, up, f)
}

// gluColumns is how many columns a warp of swiglu has at a time where rows are many.
const gluColumns = 128

// glu is GLU as part of another operation.
func (b *Backend) glu(dst, gate, up backend.Tensor, f backend.Activation) {
	atMost(maxRows, dst.Rows)
	gates := func(c quantized) {
		unit := c.columns()
		if dst.Rows > 8 && dst.Cols%gluColumns == 0 && (unit%32 == 0 || unit == nanoGroup) && !c.super { // that many groups keep the device busy
			unit = gluColumns
		}
		g := grid{x: (dst.Cols/unit + 8) / 8, y: dst.Rows, threads: 256}
		b.launch(c.kernel("rowwise.swiglu"), g, b.at(dst), dst.Stride, b.at(gate), gate.Stride, b.at(up), up.Stride, dst.Cols, unit, f == backend.GELUTanh, driver.Ptr(0), raw(c.param()))
		if c.group > 0 {
			b.passes.mark(&gated{dst, gate, up, f, c})
		}
	}
	gates(quantized{})
	b.passes.codable(dst, b.at(dst), 0, gates)
}

// GELU sets dst to x·Φ(x).
func (b *Backend) GELU(dst, x backend.Tensor, tanh bool) {
	backend.CheckGELU(dst, x)
	b.begin()
	eachRows(dst.Rows, func(from, to int) {
		dst, x := dst.RowRange(from, to), x.RowRange(from, to)
		b.launch("rowwise.gelu", pieces(dst.Rows, dst.Cols), b.at(dst), dst.Stride, b.at(x), x.Stride, x.Cols, tanh)
	})
}

// Rotate turns the heads of x.
func (b *Backend) Rotate(x, cos, sin backend.Tensor, heads int) {
	backend.CheckRotate(x, cos, sin, heads)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		x, cos, sin := x.RowRange(from, to), cos.RowRange(from, to), sin.RowRange(from, to)
		b.launch("rowwise.rotate", pieces(x.Rows, x.Cols/2), b.at(x), x.Stride, b.at(cos), cos.Stride, b.at(sin), sin.Stride, heads, cos.Cols)
	})
}

// Convolve is a short convolution.
func (b *Backend) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	backend.CheckConvolve(dst, x, c)
	atMost(maxRows, x.Rows)
	b.begin()
	call, taps := b.lists(backend.Pass{Batch: batch}), c.Base.Rows
	p := tapsParam{
		x: b.at(x), base: b.at(c.Base), delta: b.at(c.Delta), dst: b.at(dst),
		xStride: i32(x.Stride), baseStride: i32(c.Base.Stride), deltaStride: i32(c.Delta.Stride), dstStride: i32(dst.Stride),
		cols: i32(x.Cols), taps: i32(taps), groups: i32(c.Delta.Cols / taps), adds: b32(c.Add),
	}
	convolved := func(q quantized) {
		b.launch(q.kernel("rowwise.convolve"), groupsOf(dst, &q), call, raw(p), raw(q.param()))
	}
	convolved(quantized{})
	b.passes.codable(dst, b.at(dst), 0, convolved)
}

// columns is how many columns a warp has at a time.
func (q *quantized) columns() int {
	if q.group == 0 {
		return 64
	}
	return q.group
}

// param is struct Codes of kernels/quantize.cuh.
func (q *quantized) param() codesParam {
	return codesParam{codes: q.codes, tails: q.tails, stride: i32(q.stride), group: i32(q.columns()), tailRows: i32(q.tailRows), whole: b32(q.whole)}
}

// kernel is the form of a kernel that rounds so.
func (q *quantized) kernel(name string) string {
	if q.super {
		return name + "_super"
	}
	return name
}

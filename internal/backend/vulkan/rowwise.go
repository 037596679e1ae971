package vulkan

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// rowThreads is the threads of a workgroup of kernels whose columns do not depend on one another.
const rowThreads = 64

// maxRows is how many rows the second dimension of a grid may have.
const maxRows = 65535

// columns is the grid of such a kernel.
func columns(rows, cols int) [3]int { return [3]int{(cols + rowThreads - 1) / rowThreads, rows, 1} }

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
		b.launch("fill", columns(t.Rows, t.Cols), b.at(t), t.Stride, t.Cols, x)
	})
}

// Gather sets row i of dst to row rows[i] of x.
func (b *Backend) Gather(dst, x backend.Tensor, rows []int32) {
	backend.CheckGather(dst, x, rows)
	b.begin()
	call := b.listsOf(backend.Pass{Want: rows})
	b.launch("gather", columns(dst.Rows, dst.Cols), b.at(dst), b.at(x), call, dst.Stride, x.Stride, x.Cols)
}

// RMSNorm normalizes the rows of x.
func (b *Backend) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	backend.CheckRMSNorm(dst, x, gain)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		dst, x := dst.RowRange(from, to), x.RowRange(from, to)
		codes := func(group int) string { // four columns are loaded at once
			if (b.at(dst)|b.at(x)|b.at(gain)|driver.Ptr(4*(dst.Stride|x.Stride|x.Cols)))%16 != 0 || x.Cols > 8192 || group%4 != 0 || group < 16 {
				return ""
			}
			// The kernel writes 1024 columns at least. Few columns for a thread are few instructions: see kernels/product_few.comp.
			threads := 256
			for x.Rows <= strip && threads < min(b.info.Threads, 1024) && 4*threads < x.Cols {
				threads *= 2
			}
			return fmt.Sprintf("rms_norm_codes:%d,%d", threads, (x.Cols+4*threads-1)/(4*threads))
		}
		b.launchMaking(dst, codes, "rms_norm", [3]int{x.Rows, 1, 1}, b.at(dst), b.at(x), b.at(gain), dst.Stride, x.Stride, x.Cols, eps)
	})
}

// LayerNorm normalizes the rows of x.
func (b *Backend) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	backend.CheckLayerNorm(dst, x, gain, bias)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		dst, x := dst.RowRange(from, to), x.RowRange(from, to)
		b.launch("layer_norm", [3]int{x.Rows, 1, 1}, b.at(dst), b.at(x), b.at(gain), b.at(bias), dst.Stride, x.Stride, x.Cols, eps)
	})
}

// NormAdd adds the norms of the rows of x to those of dst.
func (b *Backend) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	backend.CheckNormAdd(dst, x, gain)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		dst, x := dst.RowRange(from, to), x.RowRange(from, to)
		b.launch("norm_add", [3]int{x.Rows, 1, 1}, b.at(dst), b.at(x), b.at(gain), dst.Stride, x.Stride, x.Cols, eps, scale)
	})
}

// Cap sets the numbers of x to c·tanh(x/c).
func (b *Backend) Cap(x backend.Tensor, c float32) {
	backend.CheckCap(x, c)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		x := x.RowRange(from, to)
		b.launch("cap", columns(x.Rows, x.Cols), b.at(x), x.Stride, x.Cols, c)
	})
}

// GLU sets dst to f(gate)*up.
func (b *Backend) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	backend.CheckGLU(dst, gate, up, f)
	b.begin()
	b.glu(dst, gate, up, f)
}

func (b *Backend) glu(dst, gate, up backend.Tensor, f backend.Activation) {
	eachRows(dst.Rows, func(from, to int) {
		dst, gate, up := dst.RowRange(from, to), gate.RowRange(from, to), up.RowRange(from, to)
		b.launchMaking(dst, gluCodes, "glu", columns(dst.Rows, dst.Cols), b.at(dst), b.at(gate), b.at(up), dst.Stride, gate.Stride, up.Stride, dst.Cols, f == backend.GELUTanh)
	})
}

// gluCodes is the kernel that computes GLU and quantizes, or none.
func gluCodes(group int) string {
	if group > 2*rowThreads {
		return ""
	}
	return "glu_codes"
}

// GELU sets dst to x·Φ(x).
func (b *Backend) GELU(dst, x backend.Tensor, tanh bool) {
	backend.CheckGELU(dst, x)
	b.begin()
	eachRows(dst.Rows, func(from, to int) {
		dst, x := dst.RowRange(from, to), x.RowRange(from, to)
		b.launch("gelu", columns(dst.Rows, dst.Cols), b.at(dst), b.at(x), dst.Stride, x.Stride, x.Cols, tanh)
	})
}

// Rotate turns the heads of x.
func (b *Backend) Rotate(x, cos, sin backend.Tensor, heads int) {
	backend.CheckRotate(x, cos, sin, heads)
	b.begin()
	eachRows(x.Rows, func(from, to int) {
		x, cos, sin := x.RowRange(from, to), cos.RowRange(from, to), sin.RowRange(from, to)
		b.launch("rotate", columns(x.Rows, x.Cols/2), b.at(x), b.at(cos), b.at(sin), x.Stride, cos.Stride, sin.Stride, heads, cos.Cols)
	})
}

// Convolve is a short convolution.
func (b *Backend) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	backend.CheckConvolve(dst, x, c)
	b.begin()
	call, taps := b.listsOf(backend.Pass{Batch: batch}), c.Base.Rows
	b.launch("convolve", columns(dst.Rows, dst.Cols), b.at(x), b.at(c.Base), b.at(c.Delta), b.at(dst), call,
		x.Stride, c.Base.Stride, c.Delta.Stride, dst.Stride, x.Cols, taps, c.Delta.Cols/taps, c.Add)
}

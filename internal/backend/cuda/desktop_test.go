package cuda

import (
	"fmt"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// openDesktop is the backend on a GPU like those of desktops: a block has 99 KB of shared memory.
func openDesktop(tb testing.TB) *Backend {
	tb.Helper()
	desktop := driver.Info{Name: "desktop", Compute: [2]int{8, 9}, Memory: 4 << 30, Multiprocessors: 4, Shared: 99 << 10, Driver: 13000}
	return openInterpreted(tb, drivertest.Options{Devices: []driver.Info{desktop}}, Options{})
}

// Products of few rows with the widths of 9B and 27B, their norms and their gate: kernels that have a row in shared memory give
// way to others where there is not enough of it, and so do those whose own memory is too much.
func TestProductsInLittleSharedMemory(t *testing.T) {
	formats := append([]dtype.Format{dtype.Affine, dtype.Q4_0}, superFormats...)
	for i, f := range formats {
		for _, c := range []struct{ cols, rows int }{{5120, 1}, {512, 3}, {4096, 1}}[:2+i%2] { // most kernels fit 4096
			t.Run(fmt.Sprintf("%v %+v", f, c), func(t *testing.T) {
				alike(t, openDesktop(t), func(x *bench) [][]float32 {
					const wide = 256
					in, gain, h := x.random(c.rows, c.cols, 3), x.random(1, c.cols, 1), x.random(c.rows, c.cols, 1)
					gate, up, y := x.random(c.rows, wide, 1), x.random(c.rows, wide, 1), x.random(c.rows, 40, 1)
					first, second, third := x.loadAs(f, 1, wide, c.cols), x.loadAs(f, 1, wide, c.cols), x.loadAs(f, 1, 40, wide)
					x.pass(backend.Pass{Batch: []backend.Seq{{N: c.rows}}}, true, func() {
						x.b.RMSNorm(h, in, gain, 1e-6)
						x.b.MatMul(h, backend.Product{Dst: gate, W: first}, backend.Product{Dst: up, W: second})
						x.b.GLU(gate, gate, up, backend.SiLU)
						x.b.MatMul(gate, backend.Product{Dst: y, W: third, Add: true})
					})
					return [][]float32{x.read(h), x.read(gate), x.read(up), x.read(y)}
				})
			})
		}
	}
}

// Plain float32, as files have routers and rates, in two launches: outputs that are less than two tiles, and more than four.
func TestFloatsInLittleSharedMemory(t *testing.T) {
	for _, outs := range []int{20, 40, 70, 130} {
		for _, rows := range []int{1, 9} {
			alike(t, openDesktop(t), func(x *bench) [][]float32 {
				const cols = 200
				in, bias, y, z := x.random(rows, cols, 1), x.random(1, outs, 1), x.random(rows, outs, 1), x.random(rows, outs+3, 1)
				w := x.loadAs(dtype.Plain, 1, outs, cols)
				x.b.MatMul(in, backend.Product{Dst: y, W: w, Bias: bias, Add: true}, backend.Product{Dst: z.ColRange(3, outs+3), W: w})
				return [][]float32{x.read(y), x.read(z)}
			})
		}
	}
}

// Experts of one row: as many of them at once as there is memory for.
func TestExpertsInLittleSharedMemory(t *testing.T) {
	for _, f := range []dtype.Format{dtype.Affine, dtype.Q4_0} {
		for _, cols := range []int{2048, 4096} {
			alike(t, openDesktop(t), func(x *bench) [][]float32 {
				const wide, n = 64, 11
				e := &backend.Experts{
					Router: x.loadAs(dtype.Plain, 1, n, cols), Gate: x.loadAs(f, n, wide, cols), Up: x.loadAs(f, n, wide, cols), Down: x.loadAs(f, n, cols, wide),
					TopK: 10, Normalize: true, SharedGate: x.loadAs(f, 1, wide, cols), SharedUp: x.loadAs(f, 1, wide, cols), SharedDown: x.loadAs(f, 1, cols, wide),
				}
				in, gain, h, dst := x.random(1, cols, 1), x.random(1, cols, 1), x.alloc(dtype.F32, 1, cols), x.random(1, cols, 1)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.Experts(dst, h, backend.Tensor{}, e)
				})
				return [][]float32{x.read(dst), x.read(h)}
			})
		}
	}
}

// Attention with heads of the usual widths has memory enough. Where a page is too wide, the error says so and what to do.
func TestAttentionInLittleSharedMemory(t *testing.T) {
	alike(t, openDesktop(t), func(x *bench) [][]float32 {
		a := &backend.Attention{Heads: 6, KVHeads: 1, HeadDim: 256, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
		return attendText(x, a, dtype.F16, 7, 40, 1)
	})
	for _, c := range []struct {
		a    backend.Attention
		kind dtype.Type
		rows int
	}{
		{backend.Attention{Heads: 4, KVHeads: 1, HeadDim: 576, Latent: 512}, dtype.F16, 1},
		{backend.Attention{Heads: 4, KVHeads: 1, HeadDim: 256}, dtype.F32, 1},
		{backend.Attention{Heads: 4, KVHeads: 1, HeadDim: 256}, dtype.F32, 40},
	} {
		b := openDesktop(t)
		x := &bench{tb: t, b: b}
		page := x.alloc(dtype.I8, 1, c.a.PageBytes(c.kind))
		values := c.a.HeadDim
		if c.a.Latent > 0 {
			values = 0
		}
		q, k, v, dst := x.alloc(dtype.F32, c.rows, c.a.Queries()), x.alloc(dtype.F32, c.rows, c.a.HeadDim), x.alloc(dtype.F32, c.rows, values), x.alloc(dtype.F32, c.rows, 4*c.a.Values())
		b.Attend(dst, &c.a, backend.Place{Type: c.kind}, q, k, v, []backend.Seq{{N: c.rows, Pages: []backend.Tensor{page}}})
		if _, err := b.Host(dst); err == nil || !strings.Contains(err.Error(), "--kv-bits") || !strings.Contains(err.Error(), "99") {
			t.Errorf("%+v, %v: error %v", c.a, c.kind, err)
		}
	}
}

//go:build unix

package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestIntegerProductKeepsToItsBuffers puts weights, input, activations and output right
// before memory that cannot be touched.
func TestIntegerProductKeepsToItsBuffers(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, set := range runnable() {
		for range 150 {
			c := randomCase(r)
			w := packed(t, backend.Int8, func(n int) []byte { return guarded(t, n) }, randomWeights(c, r))
			x := backend.Tensor{Type: dtype.F32, Rows: c.m, Cols: c.cols, Stride: c.cols}
			x.Mem = &memory{f32: floatsOf(guarded(t, 4*c.m*c.cols))}
			var a activations
			layout := set.product.strips(c.m, c.group)
			a.lay(c.m, c.group, c.cols/c.group, layout)
			a.data = guarded(t, len(a.data))
			for i := range c.m {
				a.put(i, row(x, i), set.product.quantize)
			}
			out := floatsOf(guarded(t, 4*w.tiles*a.outRows()*tile))
			set.product.integer(out, w, 0, 0, w.tiles, &a, &scratch{})
			for _, y := range out {
				if y != 0 {
					t.Fatalf("isa=%s/%v: zero times weights is %g", set.name, c, y)
				}
			}
		}
	}
}

// TestScatterKeepsToItsBuffers moves results of every width to rows at the end of memory.
func TestScatterKeepsToItsBuffers(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, set := range runnable() {
		b := openTest(t, Options{Threads: 1, ISA: set.name})
		for cols := 1; cols < 70; cols++ {
			rows, extra, add := 1+r.IntN(9), r.IntN(3), r.IntN(2) == 0
			tiles := (cols + tile - 1) / tile
			out := floatsOf(guarded(t, 4*tiles*(rows+extra)*tile))
			for i := range out {
				out[i] = r.Float32()
			}
			dst := backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols + extra}
			dst.Mem = &memory{f32: floatsOf(guarded(t, 4*((rows-1)*dst.Stride+cols)))}
			for i := range dst.Mem.(*memory).f32 {
				dst.Mem.(*memory).f32[i] = 1
			}
			b.scatter(backend.Product{Dst: dst, Add: add}, 0, out, rows+extra, &scratch{})
			for i := range rows {
				for j, got := range row(dst, i) {
					want := out[(j/tile*(rows+extra)+i)*tile+j%tile]
					if add {
						want++
					}
					if got != want {
						t.Fatalf("isa=%s: row %d column %d of %d is %g, want %g", set.name, i, j, cols, got, want)
					}
				}
			}
		}
	}
}

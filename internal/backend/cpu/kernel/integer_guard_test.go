//go:build unix

package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// TestIntegerProductKeepsToItsBuffers puts weights, input, activations and output right
// before memory that cannot be touched.
func TestIntegerProductKeepsToItsBuffers(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, set := range accelerated(runnable()) {
		for i := range 200 {
			var m dtype.Matrix
			var rows int
			if c := randomCase(r); i < 150 {
				m, rows = randomWeights(c, r), c.m
			} else {
				c := randomBlockCase(blockFormats[i%len(blockFormats)], r)
				c.wild = false
				m, rows = randomBlocks(c, r), c.m
			}
			w := packed(t, integers, func(n int) []byte { return guarded(t, n) }, m)
			x := Rows{Data: floatsOf(guarded(t, 4*rows*m.Cols)), N: rows, Cols: m.Cols, Stride: m.Cols}
			var a Activations
			set.Lay(&a, rows, w)
			a.data = guarded(t, len(a.data))
			for i := range rows {
				a.put(i, x.at(i), set.quantize)
			}
			out := floatsOf(guarded(t, 4*w.tiles*a.OutRows()*Tile))
			set.Integer(out, w, 0, 0, w.tiles, &a, &Scratch{})
			for _, y := range out {
				if y != 0 {
					t.Fatalf("isa=%s/%v m=%d: zero times weights is %g", set.Name, m.Format, rows, y)
				}
			}
		}
	}
}

// TestScatterKeepsToItsBuffers moves results of every width to rows at the end of memory.
func TestScatterKeepsToItsBuffers(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, set := range runnable() {
		for cols := 1; cols < 70; cols++ {
			rows, extra, add := 1+r.IntN(9), r.IntN(3), r.IntN(2) == 0
			tiles := (cols + Tile - 1) / Tile
			out := floatsOf(guarded(t, 4*tiles*(rows+extra)*Tile))
			for i := range out {
				out[i] = r.Float32()
			}
			dst := Rows{N: rows, Cols: cols, Stride: cols + extra}
			dst.Data = floatsOf(guarded(t, 4*((rows-1)*dst.Stride+cols)))
			for i := range dst.Data {
				dst.Data[i] = 1
			}
			set.Scatter(dst, add, 0, out, rows+extra, &Scratch{})
			for i := range rows {
				for j, got := range dst.at(i) {
					want := out[(j/Tile*(rows+extra)+i)*Tile+j%Tile]
					if add {
						want++
					}
					if got != want {
						t.Fatalf("isa=%s: row %d column %d of %d is %g, want %g", set.Name, i, j, cols, got, want)
					}
				}
			}
		}
	}
}

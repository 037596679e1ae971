//go:build unix

package kernel

import (
	"math/rand/v2"
	"testing"
)

// TestIntegerProductKeepsToItsBuffers puts weights, input, activations and output right
// before memory that cannot be touched.
func TestIntegerProductKeepsToItsBuffers(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, set := range runnable() {
		for range 150 {
			c := randomCase(r)
			w := packed(t, integers, func(n int) []byte { return guarded(t, n) }, randomWeights(c, r))
			x := Rows{Data: floatsOf(guarded(t, 4*c.m*c.cols)), N: c.m, Cols: c.cols, Stride: c.cols}
			var a Activations
			layout := set.strips(c.m, c.group)
			a.lay(c.m, c.group, c.cols/c.group, layout)
			a.data = guarded(t, len(a.data))
			for i := range c.m {
				a.put(i, x.at(i), set.quantize)
			}
			out := floatsOf(guarded(t, 4*w.tiles*a.OutRows()*Tile))
			set.Integer(out, w, 0, 0, w.tiles, &a, &Scratch{})
			for _, y := range out {
				if y != 0 {
					t.Fatalf("isa=%s/%v: zero times weights is %g", set.Name, c, y)
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

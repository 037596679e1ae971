package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// TestGridStacksEqualTheirMatrices: tiles in the middle of a matrix of a stack, as of experts, have the products that
// the matrix has by itself, in integers and floats.
func TestGridStacksEqualTheirMatrices(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 1))
	for _, f := range gridFormats {
		stack := make([]dtype.Matrix, 3)
		for i := range stack {
			stack[i] = randomBlocks(blockCase{format: f, rows: 60, cols: 1280}, r)
		}
		for _, integer := range []bool{integers, floats} {
			w := packed(t, integer, heap, stack...)
			for _, rows := range []int{1, 5, 19} {
				x := randomInput(rows, w.cols, r)
				product := func(set *Set, w *Weight, n, from, to int) []float32 {
					var s Scratch
					if !integer {
						out := make([]float32, (to-from)*rows*Tile)
						set.Float(out, w, n, from, to, x, &s)
						return out
					}
					a := quantized(set, x, w)
					all, out := make([]float32, (to-from)*a.OutRows()*Tile), []float32{}
					set.Integer(all, w, n, from, to, a, &s)
					for i := range to - from {
						out = append(out, all[i*a.OutRows()*Tile:][:rows*Tile]...)
					}
					return out
				}
				want := product(&Generic, packed(t, integer, heap, stack[1]), 0, 1, 4)
				for _, set := range runnable() {
					for i, y := range product(&set, w, 1, 1, 4) {
						if !sameFloat(y, want[i]) {
							t.Fatalf("isa=%s: %v, %d rows: number %d is %g, want %g", set.Name, f, rows, i, y, want[i])
						}
					}
				}
			}
		}
	}
}

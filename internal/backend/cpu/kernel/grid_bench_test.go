package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkGrid times weights of the grid formats, and of Q4_K to compare with, on one thread: what expands
// them, and products of few rows and of a prompt. A weight is 0.5 ns/op at two thousand million a second.
func BenchmarkGrid(b *testing.B) {
	const n, k = 512, 4096
	r := rand.New(rand.NewPCG(71, 1))
	for _, set := range accelerated(runnable()) {
		for _, f := range append([]dtype.Format{dtype.Q4K}, gridFormats...) {
			w := packed(b, integers, heap, randomBlocks(blockCase{format: f, rows: n, cols: k}, r))
			per := func(b *testing.B) { b.ReportMetric(float64(b.N)*n*k/b.Elapsed().Seconds()/1e9, "Gweights/s") }
			var s Scratch
			if by := set.expanders; by != nil && w.grid() {
				b.Run(fmt.Sprintf("isa=%s/type=%v/expand", set.Name, f), func(b *testing.B) {
					for b.Loop() {
						for t := range w.tiles {
							for i := range w.groups / w.per {
								s.expand(w, 0, t, t+1, i, i+1, by)
							}
						}
					}
					per(b)
				})
			}
			for _, m := range []int{1, 4, 8, 512} {
				x := Rows{Data: make([]float32, m*k), N: m, Cols: k, Stride: k}
				for i := range x.Data {
					x.Data[i] = float32(r.NormFloat64())
				}
				a := quantized(&set, x, w)
				out := make([]float32, w.tiles*a.OutRows()*Tile)
				b.Run(fmt.Sprintf("isa=%s/type=%v/m=%d", set.Name, f, m), func(b *testing.B) {
					for b.Loop() {
						set.Integer(out, w, 0, 0, w.tiles, a, &s)
					}
					per(b)
				})
			}
		}
	}
}

package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkIntegerPrompt multiplies the rows of prompts on one thread, in the fastest instruction set,
// with one format after another, so that what else the machine does falls on all of them alike. Metrics
// are the shortest times in milliseconds, by format.
func BenchmarkIntegerPrompt(b *testing.B) {
	list := runnable()
	set := &list[0]
	r := rand.New(rand.NewPCG(8, 8))
	for _, shape := range [][3]int{{512, 2048, 6144}, {512, 6144, 2048}, {9, 2048, 2048}, {16, 2048, 2048}, {32, 2048, 2048}, {48, 2048, 2048}, {64, 2048, 2048}} {
		m, k, n := shape[0], shape[1], shape[2]
		b.Run(fmt.Sprintf("m=%d/k=%d/n=%d/isa=%s", m, k, n, set.Name), func(b *testing.B) {
			names := []string{"affine4"}
			weights := []*Weight{packed(b, integers, heap, integerMatrix(b, n, k, 4))}
			for _, f := range []dtype.Format{dtype.Q4_0, dtype.Q8_0, dtype.Q4K, dtype.Q6K, dtype.Q3K, dtype.Q2K, dtype.TQ2, dtype.Q2_0, dtype.NVFP4Blocks} {
				names = append(names, fmt.Sprint(f))
				weights = append(weights, packed(b, integers, heap, randomBlocks(blockCase{format: f, rows: n, cols: k}, r)))
			}
			x := Rows{Data: make([]float32, m*k), N: m, Cols: k, Stride: k}
			for i := range x.Data {
				x.Data[i] = float32(r.NormFloat64())
			}
			acts := make([]*Activations, len(weights))
			for i, w := range weights {
				acts[i] = quantized(set, x, w)
			}
			var s Scratch
			out := make([]float32, n*(m+Tile))
			times := make([][]float64, len(weights))
			for b.Loop() {
				for i, w := range weights {
					start := time.Now()
					multiplyPrompt(set, out, w, acts[i], &s)
					times[i] = append(times[i], float64(time.Since(start).Nanoseconds())/1e6)
				}
			}
			for i, t := range times {
				slices.Sort(t)
				b.ReportMetric(t[0], names[i])
			}
		})
	}
}

// multiplyPrompt multiplies as the backend does, some rows and some tiles at a time.
func multiplyPrompt(set *Set, out []float32, w *Weight, a *Activations, s *Scratch) {
	const tiles = 16
	for first := 0; first < a.rows; first += a.AtOnce() {
		part := a.Range(first, min(a.rows, first+a.AtOnce()))
		for t := 0; t < w.tiles; t += tiles {
			set.Integer(out, w, 0, t, min(w.tiles, t+tiles), &part, s)
		}
	}
}

package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkIntegerSets multiplies 1 to 16 rows and the 512 of a prompt on one thread in every instruction set in turn, so that
// what else the machine does falls on all of them alike. It logs the shortest times in microseconds with weights from the
// second cache, and the first quartiles with weights from memory.
func BenchmarkIntegerSets(b *testing.B) {
	r := rand.New(rand.NewPCG(8, 9))
	list := accelerated(runnable())
	for _, f := range []string{"affine4", "affine8", "Q4_0", "Q4_K", "Q6_K", "affine6"} {
		matrix := func(n, k int) dtype.Matrix {
			if bits, ok := strings.CutPrefix(f, "affine"); ok {
				return integerMatrix(b, n, k, int(bits[0]-'0'))
			}
			for _, format := range blockFormats {
				if format.String() == f {
					return randomBlocks(blockCase{format: format, rows: n, cols: k}, r)
				}
			}
			b.Fatalf("no format %s", f)
			return dtype.Matrix{}
		}
		for _, from := range []string{"cache", "memory"} {
			b.Run(fmt.Sprintf("type=%s/from=%s", f, from), func(b *testing.B) {
				n, k, total := 1024, 1024, 1
				counts := []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 512}
				if from == "memory" {
					n, k, total = 4096, 2048, 150<<20
					counts = counts[:10]
				}
				m := matrix(n, k)
				var weights []*Weight
				for size := 0; size < total; size += weights[0].Size() {
					weights = append(weights, packed(b, integers, heap, m))
				}
				x := Rows{Data: make([]float32, 512*k), N: 512, Cols: k, Stride: k}
				for i := range x.Data {
					x.Data[i] = float32(r.NormFloat64())
				}
				var s Scratch
				out := make([]float32, n*(512+Tile))
				times := map[string][]float64{}
				next := 0
				for b.Loop() {
					for _, m := range counts {
						for i := range list {
							set, name := &list[i], fmt.Sprintf("m=%d/%s", m, list[i].Name)
							a := quantized(set, x.slice(0, m), weights[0])
							next++
							start := time.Now()
							multiplyPrompt(set, out, weights[next%len(weights)], a, &s)
							times[name] = append(times[name], float64(time.Since(start).Nanoseconds())/1e3)
						}
					}
				}
				for _, m := range counts {
					line := fmt.Sprintf("m=%d", m)
					for i := range list {
						t := times[fmt.Sprintf("m=%d/%s", m, list[i].Name)]
						slices.Sort(t)
						at := 0
						if from == "memory" {
							at = len(t) / 4
						}
						line += fmt.Sprintf("  %s %.1f", list[i].Name, t[at])
					}
					b.Log(line)
				}
			})
		}
	}
}

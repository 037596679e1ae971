//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// BenchmarkTransformed is calls of a 27B's layers, q with k and v, gate with up, and down, whose inputs are rotated or not.
func BenchmarkTransformed(b *testing.B) {
	dev := open(b, Options{})
	for _, call := range []struct {
		name string
		cols int
		outs []int
	}{{"qkv", 5120, []int{12288, 1024, 1024}}, {"up", 5120, []int{17408, 17408}}, {"down", 17408, []int{5120}}} {
		for _, how := range []string{"plain", "rotated"} {
			var list [layers][]backend.Weight
			for i := range list {
				for j, outs := range call.outs {
					m := dtype.Matrix{Rows: outs, Cols: call.cols, Format: dtype.ZeroPoint, Bits: 4, Group: 128, ScaleType: dtype.F16}
					fillMatrix(&m, true)
					if how == "rotated" {
						m.Input = golden.NewRotation(uint64(10*i+j), call.cols).Input
					}
					w, err := dev.Load(backend.Int8, m)
					if err != nil {
						b.Fatal(err)
					}
					list[i] = append(list[i], w)
				}
			}
			for _, rows := range []int{1, 4, 512} {
				b.Run(fmt.Sprintf("%s/%s/rows=%d", call.name, how, rows), func(b *testing.B) {
					x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
					defer x.free()
					in, one := x.random(rows, call.cols, 1), x.random(1, 1, 1)
					var products [layers][]backend.Product
					for j, outs := range call.outs {
						out := x.random(rows, outs, 1)
						for i := range list {
							products[i] = append(products[i], backend.Product{Dst: out, W: list[i][j]})
						}
					}
					replay(b, dev, backend.Pass{Of: in.Mem, Batch: []backend.Seq{{N: rows}}}, one, func() {
						for _, p := range products {
							dev.MatMul(in, p...)
						}
					})
					b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/layers*1e6, "µs/call")
				})
			}
			for _, weights := range list {
				for _, w := range weights {
					dev.Unload(w)
				}
			}
		}
	}
}

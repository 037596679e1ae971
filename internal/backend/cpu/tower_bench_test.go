package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// BenchmarkMix counts the multiplications and additions of scores and of values, one layer of a
// tower.
func BenchmarkMix(b *testing.B) {
	for _, isa := range runnable() {
		for _, c := range [][3]int{{64, 16, 64}, {1200, 16, 64}, {1200, 16, 72}, {4096, 16, 64}, {4096, 16, 72}} {
			for _, threads := range []int{1, 2} {
				n, heads, dim := c[0], c[1], c[2]
				if isa == generic && n > 64 {
					continue
				}
				b.Run(fmt.Sprintf("n=%d/heads=%d/dim=%d/threads=%d/isa=%s", n, heads, dim, threads, isa), func(b *testing.B) {
					be := openTest(b, Options{ISA: isa, Threads: threads})
					d := heads * dim
					rng := rand.New(rand.NewPCG(1, 1))
					x, dst := randomTensor(b, be, rng, n, 3*d), randomTensor(b, be, rng, n, d)
					for b.Loop() {
						be.Mix(dst, x.ColRange(0, d), x.ColRange(d, 2*d), x.ColRange(2*d, 3*d), heads, 0.125)
					}
					b.ReportMetric(float64(b.N)*4*float64(n)*float64(n)*float64(d)/b.Elapsed().Seconds()/1e9, "GFlop/s")
				})
			}
		}
	}
}

// BenchmarkTowerRows counts the bytes that a call reads and writes: of a layer of 1,200 patches.
func BenchmarkTowerRows(b *testing.B) {
	const rows, width, inner = 1200, 1024, 4096
	for _, isa := range runnable() {
		be := openTest(b, Options{ISA: isa, Threads: 1})
		rng := rand.New(rand.NewPCG(2, 2))
		x, y := randomTensor(b, be, rng, rows, inner), randomTensor(b, be, rng, rows, inner)
		gain, bias := randomTensor(b, be, rng, 1, width), randomTensor(b, be, rng, 1, width)
		cos, sin := randomTensor(b, be, rng, rows, 32), randomTensor(b, be, rng, rows, 32)
		for _, k := range []struct {
			name string
			x    backend.Tensor
			run  func(x backend.Tensor)
		}{
			{"LayerNorm", x.ColRange(0, width), func(x backend.Tensor) { be.LayerNorm(y.ColRange(0, width), x, gain, bias, 1e-6) }},
			{"GELU", x, func(x backend.Tensor) { be.GELU(y, x, false) }},
			{"GELUTanh", x, func(x backend.Tensor) { be.GELU(y, x, true) }},
			{"SwiGLU", x, func(x backend.Tensor) { be.GLU(y, x, x, backend.SiLU) }},
			{"Rotate", x.ColRange(0, width), func(x backend.Tensor) { be.Rotate(x, cos, sin, 16) }},
		} {
			b.Run(fmt.Sprintf("op=%s/isa=%s", k.name, isa), func(b *testing.B) {
				b.SetBytes(8 * int64(k.x.Rows) * int64(k.x.Cols))
				for b.Loop() {
					k.run(k.x)
				}
			})
		}
	}
}

package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestNarrowProductsGoFirst has products with plain numbers of few outputs among others, as files have them in DeltaNet layers: they
// are one launch before the others, and the norm before them still rounds its rows. Where they add to memory that another
// product writes, they stay in order.
func TestNarrowProductsGoFirst(t *testing.T) {
	for _, rows := range []int{1, 3} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			const cols = 512
			plain := func(outs int) backend.Weight {
				m := randomMatrix(x.tb, x.rng, outs, cols, 0, 0, dtype.F32)
				w, err := x.b.Load(backend.Int8, m)
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			in, h, gain := x.random(rows, cols, 1), x.random(rows, cols, 1), x.random(1, cols, 1)
			wide, alpha, beta, both := x.random(rows, 40, 1), x.random(rows, 16, 1), x.random(rows, 20, 1), x.random(rows, 24, 1)
			w, v, a, c := x.load(40, cols, 4, 64), x.load(24, cols, 4, 64), plain(16), plain(24)
			p := backend.Pass{Batch: []backend.Seq{{N: rows}}}
			x.pass(p, true, func() {
				x.b.RMSNorm(h, in, gain, 1e-6)
				x.b.MatMul(h, backend.Product{Dst: wide, W: w}, backend.Product{Dst: alpha, W: a, Add: true}, backend.Product{Dst: beta.ColRange(2, 18), W: a, Bias: gain.ColRange(0, 16)})
				x.b.RMSNorm(h, in, gain, 1e-6)
				x.b.MatMul(h, backend.Product{Dst: both, W: v}, backend.Product{Dst: both, W: c, Add: true})
			})
			return [][]float32{x.read(wide), x.read(alpha), x.read(beta), x.read(both)}
		})
		if n := last.launches; n["narrow_f32"] != 2 || n["product"] != 2 || n["quantize"] != 0 {
			t.Errorf("%d rows: launches %v", rows, n)
		}
		for _, r := range b.passes.Known {
			if name := r.ops[1].launch.Function.Name(); name != "narrow_f32" {
				t.Errorf("%d rows: %s is the first product", rows, name)
			}
		}
	}
}

package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestMatMulAddsBias checks the bias of products of every kind: once, to whatever the product
// leaves, and to the columns that are asked for.
func TestMatMulAddsBias(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, isa := range runnable() {
		b := openTest(t, Options{Threads: 2, ISA: isa})
		m := randomMatrix(rng, 50, 64)
		q, err := dtype.Quantize(&m, 4, 64, dtype.BF16)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []dtype.Matrix{m, q} {
			w, err := b.Load(backend.Int8, m)
			if err != nil {
				t.Fatal(err)
			}
			x, bias := randomTensor(t, b, rng, 7, 64), randomTensor(t, b, rng, 1, 50)
			for _, p := range []backend.Product{{}, {Add: true}, {Only: []int32{0, 3}}, {Add: true, Only: []int32{1}}} {
				p.W = w
				p.Dst = randomTensor(t, b, rng, 7, 50)
				want, before := randomTensor(t, b, rng, 7, 50), bits(t, p.Dst)
				b.Copy(want, p.Dst)
				plain := p
				plain.Dst = want
				b.MatMul(x, plain)
				p.Bias = bias
				b.MatMul(x, p)
				for r := range 7 {
					for i, y := range row(want, r) {
						if p.Only == nil || slices.Contains(p.Only, int32(i/backend.RowBlock)) {
							y += row(bias, 0)[i]
						} else if y != before[r*50+i] {
							t.Fatal("a column that was not asked for")
						}
						if got := row(p.Dst, r)[i]; got != y {
							t.Fatalf("%s, add %t, only %v: row %d column %d is %v, want %v", isa, p.Add, p.Only, r, i, got, y)
						}
					}
				}
			}
		}
	}
}

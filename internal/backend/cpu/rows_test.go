package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// Rows are multiplied some at a time. Where a product is cut does not show.
func TestMatMulOfManyRows(t *testing.T) {
	const n, k = 40, 4096
	for _, isa := range runnable() {
		be := openTest(t, Options{ISA: isa})
		rows := 300 // more than any set takes at once
		if isa == generic {
			rows = 60
		}
		w, err := be.Load(backend.Int8, integerMatrix(t, n, k, 4))
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 7))
		x, bias := randomTensor(t, be, rng, rows, k), randomTensor(t, be, rng, 1, n)
		got, want := randomTensor(t, be, rng, rows, n), randomTensor(t, be, rng, rows, n)
		be.MatMul(x, backend.Product{Dst: got, W: w, Bias: bias})
		if be.matmul.acts[0].AtOnce() >= rows {
			t.Errorf("%s: all %d rows at once", isa, rows)
		}
		for r := range rows {
			be.MatMul(x.RowRange(r, r+1), backend.Product{Dst: want.RowRange(r, r+1), W: w, Bias: bias})
			if !slices.Equal(row(got, r), row(want, r)) {
				t.Fatalf("%s: row %d of %d is not that of a product of its own", isa, r, rows)
			}
		}
	}
}

package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkEach compares a product of 20 heads with a matrix of their own, as GLM-4.7-Flash has
// two of, with a product of one matrix of as many rows.
func BenchmarkEach(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := openTest(b, Options{})
	const heads, rows, cols = 20, 512, 192
	m := randomMatrix(rng, heads*rows, cols)
	q, err := dtype.Quantize(&m, 4, 64, dtype.BF16)
	if err != nil {
		b.Fatal(err)
	}
	whole, err := d.Load(backend.Int8, q)
	if err != nil {
		b.Fatal(err)
	}
	var parts []dtype.Matrix
	for i := range heads {
		parts = append(parts, q.RowRange(i*rows, (i+1)*rows))
	}
	stack, err := d.Load(backend.Int8, parts...)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 8, 64} {
		x, y := randomTensor(b, d, rng, n, heads*256), randomTensor(b, d, rng, n, heads*576)
		one := randomTensor(b, d, rng, n, heads*rows)
		b.Run(fmt.Sprintf("heads=20/m=%d", n), func(b *testing.B) {
			b.SetBytes(stack.Bytes())
			for b.Loop() {
				d.MatMul(x, backend.Product{Dst: y, W: stack, Each: true})
			}
		})
		b.Run(fmt.Sprintf("heads=1/m=%d", n), func(b *testing.B) {
			b.SetBytes(whole.Bytes())
			for b.Loop() {
				d.MatMul(x.ColRange(0, cols), backend.Product{Dst: one, W: whole})
			}
		})
		b.Run(fmt.Sprintf("copy/m=%d", n), func(b *testing.B) {
			from, to := x, y
			from.Rows, from.Cols, from.Stride = n*heads, 256, 256
			to.Rows, to.Cols, to.Stride = n*heads, 576, 576
			for b.Loop() {
				d.Copy(to.ColRange(512, 576), from.ColRange(192, 256))
			}
		})
	}
}

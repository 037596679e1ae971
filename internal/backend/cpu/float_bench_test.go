package cpu

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkMatMulFloat multiplies with float weights that come from memory, on all threads:
// several equal matrices are used in turn, so that no cache has them.
func BenchmarkMatMulFloat(b *testing.B) {
	const n, k, size = 4096, 4096, 400 << 20
	for _, m := range []dtype.Matrix{
		{Type: dtype.BF16},
		{Type: dtype.F16},
		{Type: dtype.F32},
		{Format: dtype.FP8, Group: 128, ScaleType: dtype.F32},
		{Format: dtype.Affine, Bits: 4, Group: 64, ScaleType: dtype.BF16},
	} {
		m.Rows, m.Cols = n, k
		m.Data = make([]byte, n*m.RowBytes())
		name := m.Type.String()
		if m.Format != dtype.Plain {
			name = m.Format.String()
			m.Scales = make([]byte, n*m.ScaleRowBytes())
			if m.Format == dtype.Affine {
				m.Biases = m.Scales
			}
		}
		b.Run("type="+name, func(b *testing.B) {
			cpu := openTest(b, Options{})
			var list []*kernel.Weight
			for total := int64(0); total < size; total += list[0].Bytes() {
				w, err := cpu.Load(backend.Float32, m)
				if err != nil {
					b.Fatal(err)
				}
				list = append(list, w.(*kernel.Weight))
			}
			for _, rows := range []int{1, 2, 4, 8, 16, 128} {
				b.Run(fmt.Sprintf("m=%d/n=%d/k=%d", rows, n, k), func(b *testing.B) {
					multiplyInTurn(b, cpu, list, rows)
				})
			}
		})
	}
}

func multiplyInTurn(b *testing.B, cpu *Backend, list []*kernel.Weight, rows int) {
	x, err := cpu.Alloc(dtype.F32, rows, list[0].Cols())
	if err != nil {
		b.Fatal(err)
	}
	y, err := cpu.Alloc(dtype.F32, rows, list[0].Rows())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(list[0].Bytes())
	i := 0
	for b.Loop() {
		cpu.MatMul(x, backend.Product{Dst: y, W: list[i%len(list)]})
		i++
	}
}

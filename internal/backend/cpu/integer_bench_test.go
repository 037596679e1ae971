package cpu

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// integerMatrix is n×k with codes of so many bits, in groups of 64 with bf16 scales.
func integerMatrix(tb testing.TB, n, k, bits int) dtype.Matrix {
	m, err := dtype.NewAffine(n, k, bits, 64, dtype.BF16)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range m.Data {
		m.Data[i] = byte(i * 7)
	}
	return m
}

// BenchmarkMatMul multiplies with integer weights that come from memory, on all threads:
// several equal matrices take turns, so that no cache holds them. Compare with
// BenchmarkRead, in the same run.
func BenchmarkMatMul(b *testing.B) {
	const n, k, room = 4096, 4096, 400 << 20
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		b.Run(fmt.Sprintf("type=q%d", bits), func(b *testing.B) {
			cpu := openTest(b, Options{})
			m := integerMatrix(b, n, k, bits)
			var list []*weight
			for total := int64(0); total < room; total += list[0].Bytes() {
				w, err := cpu.Load(backend.Int8, m)
				if err != nil {
					b.Fatal(err)
				}
				list = append(list, w.(*weight))
			}
			for _, rows := range []int{1, 2, 4, 8, 12, 16, 512} {
				b.Run(fmt.Sprintf("m=%d/n=%d/k=%d", rows, n, k), func(b *testing.B) {
					multiplyInTurn(b, cpu, list, rows)
				})
			}
		})
	}
}

// BenchmarkMatMulCached multiplies few rows with weights that the second cache holds, on one
// thread.
func BenchmarkMatMulCached(b *testing.B) {
	const k = 1024
	for _, n := range []int{1024, 2048} {
		for _, bits := range []int{4, 5, 6, 8} {
			m := integerMatrix(b, n, k, bits)
			for _, rows := range []int{4, 6, 8, 9, 12, 16} {
				for _, set := range runnable() {
					if set.name == generic.name {
						continue
					}
					b.Run(fmt.Sprintf("type=q%d/m=%d/n=%d/k=%d/isa=%s", bits, rows, n, k, set.name), func(b *testing.B) {
						cpu := openTest(b, Options{Threads: 1, ISA: set.name})
						w, err := cpu.Load(backend.Int8, m)
						if err != nil {
							b.Fatal(err)
						}
						multiplyInTurn(b, cpu, []*weight{w.(*weight)}, rows)
					})
				}
			}
		}
	}
}

// BenchmarkRead reads memory in order, on all threads: what products are measured against.
func BenchmarkRead(b *testing.B) {
	const room = 400 << 20
	cpu := openTest(b, Options{})
	data, err := mapMemory(room)
	if err != nil {
		b.Fatal(err)
	}
	defer unmapMemory(data)
	for i := range data {
		data[i] = byte(i)
	}
	op := &readOp{data}
	b.SetBytes(room)
	for b.Loop() {
		cpu.pool.run(op, room>>12, 1)
	}
}

// BenchmarkPack packs weights on one thread; bytes are those of the packed weight.
func BenchmarkPack(b *testing.B) {
	const n, k = 1024, 2048
	formats := map[string]dtype.Matrix{
		"bf16": {Type: dtype.BF16}, "f16": {Type: dtype.F16}, "f32": {Type: dtype.F32},
		"mxfp4": {Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0},
		"nvfp4": {Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Global: 1},
		"fp8":   {Format: dtype.FP8, Group: 128, ScaleType: dtype.F32},
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		formats[fmt.Sprintf("q%d", bits)] = integerMatrix(b, n, k, bits)
	}
	for name, m := range formats {
		m.Rows, m.Cols = n, k
		if m.Data == nil {
			m.Data = make([]byte, n*m.RowBytes())
			m.Scales = make([]byte, n*m.ScaleRowBytes())
		}
		b.Run("type="+name, func(b *testing.B) {
			w := packed(b, backend.Int8, heap, m)
			op := &packOp{w: w, src: []dtype.Matrix{m}}
			b.SetBytes(w.Bytes())
			for b.Loop() {
				op.part(0, 0, w.tiles)
			}
		})
	}
}

// BenchmarkQuantize quantizes one row of activations.
func BenchmarkQuantize(b *testing.B) {
	for _, set := range runnable() {
		b.Run("isa="+set.name, func(b *testing.B) {
			x := make([]float32, 4096)
			for i := range x {
				x[i] = float32(i%31) - 15
			}
			var a activations
			a.lay(4, 64, len(x)/64, set.product.strips(4, 64))
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				a.put(1, x, set.product.quantize)
			}
		})
	}
}

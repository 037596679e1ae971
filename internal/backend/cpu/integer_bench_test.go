package cpu

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// integerMatrix is n×k with codes of bits bits, in groups of 64 with bf16 scales.
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
// several equal matrices are used in turn, so that no cache has them. Compare with
// BenchmarkRead, in the same run.
func BenchmarkMatMul(b *testing.B) {
	const n, k, size = 4096, 4096, 400 << 20
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		b.Run(fmt.Sprintf("type=q%d", bits), func(b *testing.B) {
			cpu := openTest(b, Options{})
			m := integerMatrix(b, n, k, bits)
			var list []*kernel.Weight
			for total := int64(0); total < size; total += list[0].Bytes() {
				w, err := cpu.Load(backend.Int8, m)
				if err != nil {
					b.Fatal(err)
				}
				list = append(list, w.(*kernel.Weight))
			}
			for _, rows := range []int{1, 2, 4, 8, 12, 16, 512} {
				b.Run(fmt.Sprintf("m=%d/n=%d/k=%d", rows, n, k), func(b *testing.B) {
					multiplyInTurn(b, cpu, list, rows)
				})
			}
		})
	}
}

// BenchmarkMatMulCached multiplies few rows with weights that fit the second cache, on one
// thread.
func BenchmarkMatMulCached(b *testing.B) {
	const k = 1024
	for _, n := range []int{1024, 2048} {
		for _, bits := range []int{4, 5, 6, 8} {
			m := integerMatrix(b, n, k, bits)
			for _, rows := range []int{4, 6, 8, 9, 12, 16} {
				for _, isa := range runnable() {
					if isa == generic {
						continue
					}
					b.Run(fmt.Sprintf("type=q%d/m=%d/n=%d/k=%d/isa=%s", bits, rows, n, k, isa), func(b *testing.B) {
						cpu := openTest(b, Options{Threads: 1, ISA: isa})
						w, err := cpu.Load(backend.Int8, m)
						if err != nil {
							b.Fatal(err)
						}
						multiplyInTurn(b, cpu, []*kernel.Weight{w.(*kernel.Weight)}, rows)
					})
				}
			}
		}
	}
}

// BenchmarkRead reads memory in order, on all threads: what products are measured against.
func BenchmarkRead(b *testing.B) {
	const size = 400 << 20
	cpu := openTest(b, Options{})
	data, err := mapMemory(size)
	if err != nil {
		b.Fatal(err)
	}
	defer unmapMemory(data)
	for i := range data {
		data[i] = byte(i)
	}
	op := &readOp{data}
	b.SetBytes(size)
	for b.Loop() {
		cpu.pool.run(op, size>>12, 1)
	}
}

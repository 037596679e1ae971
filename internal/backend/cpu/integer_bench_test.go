package cpu

import (
	"fmt"
	"slices"
	"testing"
	"time"

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

// BenchmarkMatMulCached multiplies rows with weights that fit the second cache, on one
// thread.
func BenchmarkMatMulCached(b *testing.B) {
	const k = 1024
	for _, n := range []int{1024, 2048} {
		for _, bits := range []int{4, 5, 6, 8} {
			m := integerMatrix(b, n, k, bits)
			for _, rows := range []int{1, 4, 6, 8, 9, 12, 16, 512} {
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

// BenchmarkMatMulRows multiplies one to eight rows, as many as decoding with drafts has, in every
// integer format: on one thread with weights that fit the second cache, where the work of the
// kernels counts, and on all threads with weights from memory.
func BenchmarkMatMulRows(b *testing.B) {
	type named struct {
		name string
		of   func(n, k int) dtype.Matrix
	}
	var list []named
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		list = append(list, named{fmt.Sprintf("q%d", bits), func(n, k int) dtype.Matrix { return integerMatrix(b, n, k, bits) }})
	}
	list = append(list, named{"mxfp4", func(n, k int) dtype.Matrix {
		m := dtype.Matrix{Rows: n, Cols: k, Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0}
		m.Data, m.Scales = make([]byte, n*m.RowBytes()), make([]byte, n*m.ScaleRowBytes())
		return m
	}})
	for _, f := range []dtype.Format{dtype.Q4_0, dtype.Q5_0, dtype.Q8_0, dtype.Q4K, dtype.Q5K, dtype.Q6K, dtype.IQ4XS, dtype.Q2K, dtype.Q3K} {
		list = append(list, named{fmt.Sprint(f), func(n, k int) dtype.Matrix { return blockMatrix(f, n, k) }})
	}
	for _, f := range list {
		for _, c := range []struct {
			from               string
			threads, n, k, sum int
		}{{"cache", 1, 1024, 1024, 0}, {"memory", 0, 4096, 4096, 400 << 20}} {
			m := f.of(c.n, c.k)
			for _, isa := range runnable() {
				if isa == generic || isa == "amx" { // as avx512, for few rows
					continue
				}
				b.Run(fmt.Sprintf("type=%s/from=%s/isa=%s", f.name, c.from, isa), func(b *testing.B) {
					cpu := openTest(b, Options{Threads: c.threads, ISA: isa})
					var list []*kernel.Weight
					for total := int64(-1); total < int64(c.sum); total += list[0].Bytes() {
						w, err := cpu.Load(backend.Int8, m)
						if err != nil {
							b.Fatal(err)
						}
						list = append(list, w.(*kernel.Weight))
					}
					for rows := 1; rows <= 8; rows++ {
						b.Run(fmt.Sprintf("m=%d", rows), func(b *testing.B) { multiplyInTurn(b, cpu, list, rows) })
					}
				})
			}
		}
	}
}

// blockMatrix is n×k in a block format.
func blockMatrix(f dtype.Format, n, k int) dtype.Matrix {
	m := dtype.NewBlocks(f, n, k)
	m.Data = make([]byte, n*m.RowBytes())
	for i := range m.Data {
		m.Data[i] = byte(i*7) & 0x3f
	}
	return m
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

// BenchmarkBlocks multiplies with GGUF's blocks that come from memory, on all threads, and in
// turn with the same numbers as affine groups whose scales and biases are written out. The
// ratio is that of the medians.
func BenchmarkBlocks(b *testing.B) {
	const n, k = 2048, 4096
	for _, f := range []dtype.Format{
		dtype.Q4_0, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q8_0, dtype.Q4K, dtype.Q5K, dtype.Q6K, dtype.IQ4NL, dtype.IQ4XS,
		dtype.Q2K, dtype.Q3K, dtype.TQ2, dtype.Q2_0, dtype.MXFP4Blocks, dtype.NVFP4Blocks,
	} {
		m := blockMatrix(f, n, k)
		wide := m
		if form, ok := m.AffineForm(); ok {
			wide = m.Widen()
			for _, list := range []*[]byte{&wide.Scales, &wide.Biases} {
				x := make([]float32, len(*list)/4)
				dtype.ToF32(x, dtype.F32, *list)
				*list = make([]byte, len(x)*form.ScaleType.Size())
				dtype.FromF32(*list, form.ScaleType, x)
			}
			wide.ScaleType = form.ScaleType
		}
		for _, rows := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("type=%v/m=%d", f, rows), func(b *testing.B) { compareInTurn(b, rows, m, wide) })
		}
	}
}

// BenchmarkZeroPoints multiplies with codes that have zero points and come from memory, on all threads, and in turn
// with the same numbers as affine groups, whose scales and biases must be float32.
func BenchmarkZeroPoints(b *testing.B) {
	const n, k = 2048, 4096
	for _, c := range []struct {
		bits, group int
		stored      bool
	}{{4, 32, true}, {4, 128, true}, {4, 128, false}, {8, 32, true}, {8, 128, false}} {
		m := dtype.Matrix{Rows: n, Cols: k, Format: dtype.ZeroPoint, Bits: c.bits, Group: c.group, ScaleType: dtype.BF16}
		m.Data, m.Scales = make([]byte, n*m.RowBytes()), make([]byte, n*m.ScaleRowBytes())
		for i := range m.Data {
			m.Data[i] = byte(i * 7)
		}
		wide := m
		wide.Format, wide.ScaleType = dtype.Affine, dtype.F32
		wide.Scales, wide.Biases = make([]byte, n*wide.ScaleRowBytes()), make([]byte, n*wide.ScaleRowBytes())
		if c.stored {
			m.Zeros = make([]byte, n*m.Groups())
		}
		for _, rows := range []int{1, 4, 8, 512} {
			b.Run(fmt.Sprintf("type=q%d/group=%d/stored=%v/m=%d", c.bits, c.group, c.stored, rows), func(b *testing.B) { compareInTurn(b, rows, m, wide) })
		}
	}
}

// BenchmarkFP8 multiplies with the integers that are loaded in place of FP8, and in turn with FP8 by floats.
func BenchmarkFP8(b *testing.B) {
	const n, k = 2048, 4096
	floats := dtype.Matrix{Rows: n, Cols: k, Format: dtype.FP8, Group: 128, ScaleType: dtype.F32}
	floats.Data, floats.Scales = make([]byte, n*floats.RowBytes()), make([]byte, n*floats.ScaleRowBytes())
	for i := range floats.Data {
		floats.Data[i] = byte(i*7) & 0x3f
	}
	m, err := dtype.NewSymmetric(n, k, 8, 64, dtype.BF16)
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 4, 8, 512} {
		b.Run(fmt.Sprintf("m=%d", rows), func(b *testing.B) { compareInTurn(b, rows, m, floats) })
	}
}

// compareInTurn multiplies with two matrices in turn, several of each, so that no cache has them. The ratio is that of
// the medians.
func compareInTurn(b *testing.B, rows int, m, other dtype.Matrix) {
	const size = 400 << 20
	cpu := openTest(b, Options{})
	var lists [2][]*kernel.Weight
	for i, x := range []dtype.Matrix{m, other} {
		for total := int64(0); total < size; total += lists[i][0].Bytes() {
			w, err := cpu.Load(backend.Int8, x)
			if err != nil {
				b.Fatal(err)
			}
			lists[i] = append(lists[i], w.(*kernel.Weight))
		}
	}
	x, err := cpu.Alloc(dtype.F32, rows, m.Cols)
	if err != nil {
		b.Fatal(err)
	}
	y, err := cpu.Alloc(dtype.F32, rows, m.Rows)
	if err != nil {
		b.Fatal(err)
	}
	var times [2][]time.Duration
	for turn := 0; b.Loop(); turn++ {
		for i, list := range lists {
			start := time.Now()
			cpu.MatMul(x, backend.Product{W: list[turn%len(list)], Dst: y})
			times[i] = append(times[i], time.Since(start))
		}
	}
	slices.Sort(times[0])
	slices.Sort(times[1])
	own, than := times[0][len(times[0])/2], times[1][len(times[1])/2]
	numbers := float64(m.Rows * m.Cols)
	b.ReportMetric(float64(lists[0][0].Bytes())/float64(own.Nanoseconds()), "GB/s")
	b.ReportMetric(float64(own)/float64(than), "ratio")
	b.ReportMetric(8*float64(lists[0][0].Bytes())/numbers, "bits")
	b.ReportMetric(8*float64(lists[1][0].Bytes())/numbers, "wide-bits")
}

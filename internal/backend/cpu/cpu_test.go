package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Options are those of Open.
type Options = backend.Options

// openTest opens a backend for a test, which closes it at its end.
func openTest(tb testing.TB, o Options) *Backend {
	tb.Helper()
	b, err := Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// runnable lists the instruction sets that this machine can run, the best first.
func runnable() []string {
	info := probe()[0]
	return info.Runnable()
}

// generic is the name of the set that defines the others.
var generic = kernel.Generic.Name

// sameFloat reports whether a and b have the same bits; a NaN is as good as another.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// randomTensor is filled with numbers around zero.
func randomTensor(tb testing.TB, b *Backend, rng *rand.Rand, rows, cols int) backend.Tensor {
	tb.Helper()
	t, err := b.Alloc(dtype.F32, rows, cols)
	if err != nil {
		tb.Fatal(err)
	}
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	if err := b.Write(t, x); err != nil {
		tb.Fatal(err)
	}
	return t
}

// randomMatrix is a plain float32 matrix.
func randomMatrix(rng *rand.Rand, rows, cols int) dtype.Matrix {
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: make([]byte, 4*len(x))}
	dtype.FromF32(m.Data, dtype.F32, x)
	return m
}

// formats are matrices of every encoding with the same values, more or less.
func formats(tb testing.TB, rng *rand.Rand, rows, cols int) map[string]dtype.Matrix {
	tb.Helper()
	m := randomMatrix(rng, rows, cols)
	list := map[string]dtype.Matrix{"f32": m}
	values := make([]float32, rows*cols)
	dtype.ToF32(values, dtype.F32, m.Data)
	for _, t := range []dtype.Type{dtype.BF16, dtype.F16} {
		p := dtype.Matrix{Rows: rows, Cols: cols, Type: t, Data: make([]byte, 2*len(values))}
		dtype.FromF32(p.Data, t, values)
		list[t.String()] = p
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{16, 32, 64, 128} {
			for _, scale := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32} {
				if cols%group != 0 {
					continue
				}
				q, err := dtype.Quantize(&m, bits, group, scale)
				if err != nil {
					tb.Fatal(err)
				}
				list[fmt.Sprintf("affine bits=%d group=%d scale=%v", bits, group, scale)] = q
				if q, err = dtype.NewSymmetric(rows, cols, bits, group, scale); err == nil {
					err = dtype.QuantizeRows(&q, &m, 0, rows)
				}
				if err != nil {
					tb.Fatal(err)
				}
				if group%64 == 0 { // with zero points that are stored
					q.Zeros = make([]byte, rows*q.Groups())
					for i := range q.Zeros {
						q.Zeros[i] = byte(rng.IntN(1 << bits))
					}
				}
				list[fmt.Sprintf("zero-point bits=%d group=%d scale=%v", bits, group, scale)] = q
			}
		}
	}
	for _, f := range []struct {
		format dtype.Format
		group  int
		bits   int
		scale  dtype.Type
	}{
		{dtype.MXFP4, 32, 4, dtype.F8E8M0},
		{dtype.NVFP4, 16, 4, dtype.F8E4M3},
		{dtype.MXFP8, 32, 8, dtype.F8E8M0},
		{dtype.FP8, 48, 8, dtype.F32},
	} {
		if f.format != dtype.FP8 && cols%f.group != 0 {
			continue
		}
		list[f.format.String()] = randomCodes(rng, rows, cols, f.format, f.group, f.bits, f.scale)
	}
	return list
}

// randomCodes is a matrix of random codes that all stand for finite numbers.
func randomCodes(rng *rand.Rand, rows, cols int, format dtype.Format, group, bits int, scale dtype.Type) dtype.Matrix {
	m := dtype.Matrix{Rows: rows, Cols: cols, Format: format, Group: group, ScaleType: scale, Global: 1}
	if format == dtype.NVFP4 {
		m.Global = 0.75
	}
	m.Data = make([]byte, rows*cols*bits/8)
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32())
		if bits == 8 && m.Data[i]&0x7f == 0x7f {
			m.Data[i] = 0
		}
	}
	n := rows * ((cols + group - 1) / group)
	m.Scales = make([]byte, n*scale.Size())
	if scale == dtype.F32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = rng.Float32()
		}
		dtype.FromF32(m.Scales, dtype.F32, x)
		return m
	}
	for i := range m.Scales {
		m.Scales[i] = byte(120 + rng.IntN(7)) // near one as E8M0, near 400 as E4M3
	}
	return m
}

// TestMatMulEqualsFloat64 compares products with plain float64 sums: float weights closely,
// integer products as closely as 8-bit inputs allow, and to the integer definition exactly.
func TestMatMulEqualsFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	b := openTest(t, Options{})
	for _, shape := range [][3]int{{1, 16, 128}, {3, 37, 256}, {5, 50, 130}} {
		x := randomTensor(t, b, rng, shape[0], shape[2])
		for name, m := range formats(t, rng, shape[1], shape[2]) {
			for _, c := range []backend.Compute{backend.Float32, backend.Int8} {
				w, err := b.Load(c, m)
				if err != nil {
					t.Fatal(err)
				}
				y := randomTensor(t, b, rng, shape[0], shape[1])
				b.MatMul(x, backend.Product{Dst: y, W: w})
				tol := 1e-5
				if w.(*kernel.Weight).Integer() {
					tol = 0.01
				}
				checkProduct(t, fmt.Sprintf("%s %v %v", name, c, shape), x, y, &m, tol)
				b.Unload(w)
			}
		}
	}
}

func checkProduct(t *testing.T, what string, x, y backend.Tensor, m *dtype.Matrix, tol float64) {
	t.Helper()
	w := make([]float32, m.Cols)
	for n := range m.Rows {
		m.Row(w, n)
		for r := range x.Rows {
			sum, size := 0.0, 0.0
			for k, v := range row(x, r) {
				sum += float64(v) * float64(w[k])
				size += float64(w[k]) * float64(w[k])
			}
			size = math.Sqrt(size * float64(m.Cols))
			if got := float64(row(y, r)[n]); math.Abs(got-sum) > tol*size || math.IsNaN(got) {
				t.Fatalf("%s: row %d output %d is %g, want %g within %g", what, r, n, got, sum, tol*size)
			}
		}
	}
}

// TestMatMulAllocatesNothing covers quantizing, kernels and scattering, once warm.
func TestMatMulAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, isa := range runnable() {
		b := openTest(t, Options{Threads: 2, ISA: isa})
		for _, m := range []int{1, 5, 16, 40, 60} {
			const rows, cols = 70, 128
			w, err := b.Load(backend.Int8, integerMatrix(t, rows, cols, 4))
			if err != nil {
				t.Fatal(err)
			}
			x, y := randomTensor(t, b, r, m, cols), randomTensor(t, b, r, m, rows)
			products := []backend.Product{{Dst: y, W: w, Add: true}}
			if n := allocations(b, 20, func() { b.MatMul(x, products...) }); n != 0 {
				t.Errorf("isa=%s/m=%d: %g allocations a product", isa, m, n)
			}
		}
	}
}

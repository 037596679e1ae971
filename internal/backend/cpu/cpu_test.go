package cpu

import (
	"bytes"
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
	info := probe()
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

// TestPackKeepsValues reads every row of a packed matrix back.
func TestPackKeepsValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	b := openTest(t, Options{})
	for _, shape := range [][2]int{{1, 128}, {16, 256}, {37, 384}, {64, 130}} {
		for name, m := range formats(t, rng, shape[0], shape[1]) {
			if err := m.Validate(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w, err := b.Load(backend.Int8, m)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			ids := make([]int32, m.Rows)
			for i := range ids {
				ids[i] = int32(len(ids) - 1 - i)
			}
			dst, err := b.Alloc(dtype.F32, m.Rows, m.Cols)
			if err != nil {
				t.Fatal(err)
			}
			b.Embed(dst, w, ids)
			want := make([]float32, m.Cols)
			for i, id := range ids {
				m.Row(want, int(id))
				for j, x := range row(dst, i) {
					if x != want[j] {
						t.Fatalf("%s %v: row %d column %d is %g, want %g", name, shape, id, j, x, want[j])
					}
				}
			}
			b.Unload(w)
		}
	}
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

// TestMatMulAdds checks that Add adds to what is there, and that several products of one
// input do not disturb each other.
func TestMatMulAdds(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	b := openTest(t, Options{})
	x := randomTensor(t, b, rng, 3, 64)
	m1, m2 := randomMatrix(rng, 20, 64), randomMatrix(rng, 40, 64)
	w1, err := b.Load(backend.Float32, m1)
	if err != nil {
		t.Fatal(err)
	}
	w2, err := b.Load(backend.Float32, m2)
	if err != nil {
		t.Fatal(err)
	}
	plain1, plain2 := randomTensor(t, b, rng, 3, 20), randomTensor(t, b, rng, 3, 40)
	b.MatMul(x, backend.Product{Dst: plain1, W: w1})
	b.MatMul(x, backend.Product{Dst: plain2, W: w2})
	sum, other := randomTensor(t, b, rng, 3, 20), randomTensor(t, b, rng, 3, 40)
	before := append([]float32(nil), sum.Mem.(*memory).f32...)
	b.MatMul(x, backend.Product{Dst: sum, W: w1, Add: true}, backend.Product{Dst: other, W: w2})
	for i, v := range sum.Mem.(*memory).f32 {
		if want := before[i] + plain1.Mem.(*memory).f32[i]; v != want {
			t.Fatalf("sum[%d] = %g, want %g", i, v, want)
		}
	}
	for i, v := range other.Mem.(*memory).f32 {
		if want := plain2.Mem.(*memory).f32[i]; v != want {
			t.Fatalf("other[%d] = %g, want %g", i, v, want)
		}
	}
}

// TestMatMulOnlyComputesWhatIsAsked checks that a selection of rows has the bits of the
// whole product, and that the rest is left alone.
func TestMatMulOnlyComputesWhatIsAsked(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	b := openTest(t, Options{})
	m := randomMatrix(rng, 500, 128)
	q, err := dtype.Quantize(&m, 4, 64, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []dtype.Matrix{m, q} {
		w, err := b.Load(backend.Int8, m)
		if err != nil {
			t.Fatal(err)
		}
		x := randomTensor(t, b, rng, 3, 128)
		all, some := randomTensor(t, b, rng, 3, 500), randomTensor(t, b, rng, 3, 500)
		b.MatMul(x, backend.Product{Dst: all, W: w})
		b.Fill(some, -7)
		only := []int32{0, 1, 2, 5, 7, 8, 30, 31} // the last block is short
		b.MatMul(x, backend.Product{Dst: some, W: w, Only: only})
		for r := range 3 {
			for i, got := range row(some, r) {
				want := float32(-7)
				for _, block := range only {
					if i/backend.RowBlock == int(block) {
						want = row(all, r)[i]
					}
				}
				if got != want {
					t.Fatalf("row %d column %d is %v, want %v", r, i, got, want)
				}
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
			if n := testing.AllocsPerRun(20, func() { b.MatMul(x, products...) }); n != 0 {
				t.Errorf("isa=%s/m=%d: %g allocations a product", isa, m, n)
			}
		}
	}
}

// TestMatMulShowsFaults checks that a number that is not finite is not rounded away.
func TestMatMulShowsFaults(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	b := openTest(t, Options{})
	m := randomMatrix(rng, 16, 128)
	q, err := dtype.Quantize(&m, 4, 64, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Load(backend.Int8, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x, y := randomTensor(t, b, rng, 2, 128), randomTensor(t, b, rng, 2, 16)
		row(x, 1)[70] = float32(bad)
		b.MatMul(x, backend.Product{Dst: y, W: w})
		for i := range 16 {
			if v := row(y, 0)[i]; v != v {
				t.Fatalf("%g in row 1 reached row 0", bad)
			}
			if v := row(y, 1)[i]; v == v {
				t.Fatalf("%g in row 1 gives %g", bad, v)
			}
		}
	}
}

func TestBytesAreReadBack(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	for _, kind := range []dtype.Type{dtype.F32, dtype.F16, dtype.I8} {
		x, err := b.Alloc(kind, 5, 8)
		if err != nil {
			t.Fatal(err)
		}
		if n := int64(5 * 8 * kind.Size()); x.Mem.Bytes() != n {
			t.Errorf("%v: %d bytes, want %d", kind, x.Mem.Bytes(), n)
		}
		all := make([]byte, 5*8*kind.Size())
		for i := range all {
			all[i] = byte(i + 1)
		}
		if err := b.WriteBytes(x, all); err != nil {
			t.Fatal(err)
		}
		// A view with gaps, and a copy of it without.
		view := x.RowRange(1, 4).ColRange(2, 5)
		plain, err := b.Alloc(kind, 3, 3)
		if err != nil {
			t.Fatal(err)
		}
		b.Copy(plain, view)
		got, want := make([]byte, 9*kind.Size()), []byte{}
		for r := range 3 {
			want = append(want, all[((r+1)*8+2)*kind.Size():][:3*kind.Size()]...)
		}
		for name, y := range map[string]backend.Tensor{"view": view, "copy": plain} {
			if err := b.ReadBytes(got, y); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: %s is %v, want %v; error %v", kind, name, got, want, err)
			}
		}
		if b.ReadBytes(got[1:], view) == nil || b.WriteBytes(view, got[1:]) == nil {
			t.Errorf("%v: a wrong number of bytes was accepted", kind)
		}
	}
}

package cuda

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// randomMatrix is of numbers around zero, quantized if bits is not zero.
func randomMatrix(tb testing.TB, rng *rand.Rand, rows, cols, bits, group int, scale dtype.Type) dtype.Matrix {
	tb.Helper()
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: make([]byte, 4*len(x))}
	dtype.FromF32(m.Data, dtype.F32, x)
	if bits == 0 {
		return m
	}
	q, err := dtype.Quantize(&m, bits, group, scale)
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// multiplied is the product of random rows with m on a device, added to random numbers.
func multiplied(tb testing.TB, b backend.Backend, m dtype.Matrix, rows int, p backend.Product) []float32 {
	tb.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(rows)))
	list := func(rows, cols int) backend.Tensor {
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
	x, y, bias := list(rows, m.Cols), list(rows, m.Rows), list(1, m.Rows)
	w, err := b.Load(backend.Int8, m)
	if err != nil {
		tb.Fatal(err)
	}
	p.Dst, p.W, p.Bias = y, w, bias
	b.MatMul(x, p)
	host, err := b.Host(y)
	if err != nil {
		tb.Fatal(err)
	}
	got := append([]float32(nil), host...)
	b.Unload(w)
	for _, t := range []backend.Tensor{x, y, bias} {
		b.Free(t)
	}
	return got
}

// productOf is a product of a number of rows: some add to what is there, some have a list of blocks.
func productOf(rows int) backend.Product {
	p := backend.Product{Add: rows%2 == 0}
	if rows == 4 {
		p.Only = []int32{0, 2}
	}
	return p
}

// sameProduct compares a product with the CPU's.
func sameProduct(t *testing.T, b, oracle backend.Backend, m dtype.Matrix, rows int, p backend.Product) {
	t.Helper()
	got, want := multiplied(t, b, m, rows, p), multiplied(t, oracle, m, rows, p)
	for i := range want {
		if g, w := got[i], want[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%v of %d bits in groups of %d, scales of %v, %d×%d with factor %v, %d rows: number %d is %v, want %v",
				m.Format, m.Bits, m.Group, m.ScaleType, m.Rows, m.Cols, m.Global, rows, i, g, w)
		}
	}
}

// TestTensorCoresEqualCPU multiplies with weights that lie for tensor cores, of every kind: every
// number of rows around the sizes of strips, columns that are no whole chunks, rows that are no whole
// tile, more tiles than teams. Codes of 5 bits get 8, and those of 3 get 4; halves become float32.
func TestTensorCoresEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 130}
	for _, k := range []struct {
		bits, group int
		scale       dtype.Type
		rows        []int
	}{
		{4, 64, dtype.BF16, all},
		{8, 64, dtype.BF16, all},
		{5, 64, dtype.BF16, []int{1}},
		{3, 64, dtype.BF16, []int{9}},
		{4, 32, dtype.BF16, []int{2, 12, 40}},
		{8, 32, dtype.BF16, []int{3, 17, 40}},
		{4, 128, dtype.BF16, []int{1, 9, 40}},
		{6, 128, dtype.BF16, []int{8, 30, 40}},
		{4, 64, dtype.F16, []int{5, 11, 40}},
		{8, 64, dtype.F32, []int{1, 10, 40}},
		{4, 32, dtype.F16, []int{7, 13, 40}},
		{5, 32, dtype.F32, []int{6, 14, 40}},
	} {
		for _, rows := range k.rows {
			outs, cols := 40, k.group*5
			if rows < 3 {
				outs, cols = 16*70, k.group*9
			}
			if k.bits*k.group == 256 && rows > 1 && rows < 6 { // as many chunks as a team has warps, and one more
				cols = k.group * 36
			}
			m := randomMatrix(t, rng, outs, cols, k.bits, k.group, k.scale)
			sameProduct(t, b, oracle, m, rows, productOf(rows))
		}
	}
}

// TestFloatsEqualCPU multiplies with plain numbers, columns that are no whole block or chunk included: by the kernels for few
// outputs, with more chunks than are under way, and by the others, as where shared memory is too small for those.
func TestFloatsEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	shared := b.info.Shared
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32} {
		for _, shape := range [][3]int{{1, 100, 64 * 9}, {2, 40, 129}, {8, 16, 64}, {17, 33, 70}, {1, 16, 256*10 + 37}, {7, 20, 256 * 9}, {3, 17, 512}} {
			rows, outs, cols := shape[0], shape[1], shape[2]
			m := dtype.Matrix{Rows: outs, Cols: cols, Type: typ, Data: make([]byte, outs*cols*typ.Size())}
			x := make([]float32, outs*cols)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			dtype.FromF32(m.Data, typ, x)
			for _, b.info.Shared = range []int{shared, 48 << 10} {
				if b.info.Shared != shared && cols > 1000 {
					continue // the interpreter takes its time
				}
				sameProduct(t, b, oracle, m, rows, backend.Product{Add: outs == 17})
			}
		}
	}
}

// TestArrangedWeights holds the formats that tensor cores multiply to the list, so that none falls
// back to the slow kernel unseen.
func TestArrangedWeights(t *testing.T) {
	b := open(t, Options{})
	for f, laid := range map[dtype.Format]bool{
		dtype.Q4_0: true, dtype.Q4_1: true, dtype.Q5_0: true, dtype.Q5_1: true, dtype.Q8_0: true,
		dtype.Q4K: true, dtype.Q5K: true, dtype.Q6K: true, dtype.IQ4NL: true, dtype.IQ4XS: true,
		dtype.Q2K: true, dtype.Q3K: true, dtype.TQ1: true, dtype.Q1_0: true, dtype.Q2_0: true, dtype.IQ2XXS: true,
	} {
		m := dtype.NewBlocks(f, 16, 256)
		m.Data = make([]byte, m.Rows*m.RowBytes())
		w, err := b.Load(backend.Int8, m)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.(*weight).laid(); got != laid {
			t.Errorf("%v: lies for tensor cores: %v, want %v", f, got, laid)
		}
	}
}

// TestEveryFormat runs every format of weights, of which the brief suite has some.
func TestEveryFormat(t *testing.T) {
	backendtest.New(t).Only("Load", "Embed").Run(t, open(t, Options{}))
}

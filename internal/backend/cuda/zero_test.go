package cuda

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// randomPoints is a matrix of random codes with zero points, which are stored or all the same.
func randomPoints(tb testing.TB, rng *rand.Rand, rows, cols, bits, group int, scale dtype.Type, zeros bool) dtype.Matrix {
	tb.Helper()
	m := dtype.Matrix{Rows: rows, Cols: cols, Format: dtype.ZeroPoint, Bits: bits, Group: group, ScaleType: scale}
	m.Data, m.Scales = make([]byte, rows*m.RowBytes()), make([]byte, rows*m.ScaleRowBytes())
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32())
	}
	x := make([]float32, rows*m.Groups())
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	dtype.FromF32(m.Scales, scale, x)
	if zeros {
		m.Zeros = make([]byte, len(x))
		for i := range m.Zeros {
			m.Zeros[i] = byte(rng.IntN(1 << bits))
		}
	}
	if err := m.Validate(); err != nil {
		tb.Fatal(err)
	}
	return m
}

// TestZeroPointsEqualCPU multiplies with codes that have zero points, by every kernel that there is for them and by the slow
// one: every number of rows around the sizes of strips, columns that are no whole chunk, outputs that are no whole tile, more
// tiles than teams.
func TestZeroPointsEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []struct {
		bits, group int
		scale       dtype.Type
		zeros, slow bool
		rows        []int
	}{
		{4, 64, dtype.F16, true, false, []int{1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 130}},
		{8, 64, dtype.BF16, true, false, []int{1, 9, 17, 40, 130}},
		{4, 128, dtype.BF16, true, false, []int{1, 4, 9, 17, 40, 130}},
		{8, 128, dtype.F16, false, false, []int{2, 17, 40}},
		{4, 32, dtype.BF16, true, false, []int{3, 17, 40}},
		{8, 32, dtype.BF16, false, false, []int{4, 17, 40}},
		{4, 32, dtype.F16, false, false, []int{1, 2, 7, 17, 40}}, // as Q4_0
		{8, 32, dtype.F16, false, false, []int{2, 40}},
		{2, 32, dtype.F16, false, false, []int{1, 9}}, // codes are raised
		{6, 32, dtype.F16, false, false, []int{9}},
		{3, 128, dtype.F16, true, false, []int{1}},
		{5, 64, dtype.BF16, false, false, []int{4}},
		{4, 64, dtype.F32, true, false, []int{1, 12, 40}},
		{8, 64, dtype.F32, false, false, []int{2, 12, 40}},
		{4, 32, dtype.F32, false, false, []int{3, 12, 40}},
		{8, 32, dtype.F32, true, false, []int{4, 12, 40}},
		{4, 128, dtype.F32, true, false, []int{5, 12, 40}},
		{8, 128, dtype.F32, false, false, []int{1, 12, 40}},
		{4, 16, dtype.F16, true, true, []int{1, 17}},
		{8, 96, dtype.BF16, true, true, []int{9}},
		{4, 256, dtype.BF16, true, false, []int{3}}, // in halves
	} {
		for _, rows := range k.rows {
			outs, cols := 40, k.group*5
			if rows < 3 {
				outs, cols = 16*70, k.group*9
			}
			if k.bits*k.group == 256 && rows > 1 && rows < 5 { // as many chunks as a team has warps, and one more
				cols = k.group * 36
			}
			if k.scale == dtype.F16 && k.group == 32 && !k.zeros && rows != 7 { // whole pairs
				cols += k.group
			}
			m := randomPoints(t, rng, outs, cols, k.bits, k.group, k.scale, k.zeros)
			sameProduct(t, b, oracle, m, rows, productOf(rows))
		}
		w, err := b.Load(backend.Int8, randomPoints(t, rng, 16, 2*k.group, k.bits, k.group, k.scale, k.zeros))
		if err != nil {
			t.Fatal(err)
		}
		if w.(*weight).laid() == k.slow {
			t.Errorf("%+v: lies for tensor cores: %v", k, !k.slow)
		}
	}
}

// TestScalesAsHalves has scales of bf16 that are halves as well, and some that are not: these keep their bits, in more memory.
func TestScalesAsHalves(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	for _, c := range []struct {
		scale float32
		bits  int64 // of four weights
	}{{0, 18}, {1 << 15, 18}, {-1.9921875 / (1 << 17), 18}, {1.0078125 / (1 << 18), 20}, {1 << 16, 20}, {float32(math.NaN()), 20}} {
		m := randomPoints(t, rand.New(rand.NewPCG(1, 2)), 16, 64, 4, 32, dtype.BF16, false)
		dtype.FromF32(m.Scales[6:8], dtype.BF16, []float32{c.scale})
		w, err := b.Load(backend.Int8, m)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.Bytes(), 16*64/4*c.bits/8; got != want {
			t.Errorf("scale %g: %d bytes, want %d", c.scale, got, want)
		}
		sameProduct(t, b, oracle, m, 2, backend.Product{})
	}
}

// TestZeroPointExperts has experts with zero points: of one row two kernels, of more rows as others are.
func TestZeroPointExperts(t *testing.T) {
	const cols, wide, n = 1600, 128, 3
	for _, rows := range []int{1, 5} {
		alike(t, open(t, Options{}), func(x *bench) [][]float32 {
			e := &backend.Experts{
				Router: x.loadAs(dtype.ZeroPoint, 1, n, cols), Gate: x.loadAs(dtype.ZeroPoint, n, wide, cols), Up: x.loadAs(dtype.ZeroPoint, n, wide, cols), Down: x.loadAs(dtype.ZeroPoint, n, cols, wide),
				SharedGate: x.loadAs(dtype.ZeroPoint, 1, wide, cols), SharedUp: x.loadAs(dtype.ZeroPoint, 1, wide, cols), SharedDown: x.loadAs(dtype.ZeroPoint, 1, cols, wide),
				TopK: 2, Normalize: true,
			}
			in, gain, h, dst := x.random(rows, cols, 1), x.random(1, cols, 1), x.alloc(dtype.F32, rows, cols), x.random(rows, cols, 1)
			x.pass(backend.Pass{Batch: []backend.Seq{{N: rows}}}, rows == 1, func() {
				x.b.RMSNorm(h, in, gain, 1e-6)
				x.b.Experts(dst, h, backend.Tensor{}, e)
			})
			return [][]float32{x.read(dst), x.read(h)}
		})
	}
}

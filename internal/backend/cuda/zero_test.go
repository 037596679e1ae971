package cuda

import (
	"fmt"
	"maps"
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
			p := backend.Product{Add: rows%2 == 0}
			if rows == 4 {
				p.Only = []int32{0, 2}
			}
			got, want := multiplied(t, b, m, rows, p), multiplied(t, oracle, m, rows, p)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%+v, %d rows: number %d is %v, want %v", k, rows, i, got[i], want[i])
				}
			}
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
		got, want := multiplied(t, b, m, 2, backend.Product{}), multiplied(t, oracle, m, 2, backend.Product{})
		for i := range want {
			if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) {
				t.Fatalf("scale %g: number %d is %v, want %v", c.scale, i, got[i], want[i])
			}
		}
	}
}

// TestZeroPointsOfOneRowNormAndGate has products of one row that take over what comes before them: rounded with whole sums,
// and not where others want scaled ones.
func TestZeroPointsOfOneRowNormAndGate(t *testing.T) {
	for _, c := range []struct {
		cols, wide, outs int
		last             dtype.Format // of the last product
		launches         map[string]int
	}{
		{4288, 192, 40, dtype.ZeroPoint, map[string]int{"product": 3, "quantize": 1}},
		{4096, 128, 40, dtype.Affine, map[string]int{"product": 3, "swiglu": 1, "quantize": 1}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				load := func(outs, cols int) backend.Weight {
					w, err := x.b.Load(backend.Int8, randomPoints(t, x.rng, outs, cols, 4, 64, dtype.BF16, true))
					if err != nil {
						t.Fatal(err)
					}
					return w
				}
				in, gain, h := x.random(1, c.cols, 3), x.random(1, c.cols, 1), x.random(1, c.cols, 1)
				gate, up, y, z := x.random(1, c.wide, 1), x.random(1, c.wide, 1), x.random(1, c.outs, 1), x.random(1, 24, 1)
				first, second, other := load(c.wide, c.cols), load(c.wide, c.cols), load(24, c.cols)
				third := x.load(c.outs, c.wide, 4, 64)
				if c.last == dtype.ZeroPoint {
					third = load(c.outs, c.wide)
				}
				x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.MatMul(h, backend.Product{Dst: gate, W: first}, backend.Product{Dst: up, W: second})
					x.b.SwiGLU(gate, gate, up)
					x.b.MatMul(gate, backend.Product{Dst: y, W: third, Add: true})
					x.b.MatMul(h, backend.Product{Dst: z, W: other})
				})
				return [][]float32{x.read(h), x.read(gate), x.read(up), x.read(y), x.read(z)}
			})
			if !maps.Equal(last.launches, c.launches) {
				t.Errorf("launches %v, want %v", last.launches, c.launches)
			}
		})
	}
}

// TestZeroPointExperts has experts with zero points: of one row two kernels, of more rows as others are.
func TestZeroPointExperts(t *testing.T) {
	const cols, wide, n = 1600, 128, 3
	for _, rows := range []int{1, 5} {
		alike(t, open(t, Options{}), func(x *bench) [][]float32 {
			stack := func(n, outs, cols int) backend.Weight {
				var list []dtype.Matrix
				for range n {
					list = append(list, randomPoints(t, x.rng, outs, cols, 4, 64, dtype.F16, true))
				}
				w, err := x.b.Load(backend.Int8, list...)
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			e := &backend.Experts{
				Router: stack(1, n, cols), Gate: stack(n, wide, cols), Up: stack(n, wide, cols), Down: stack(n, cols, wide),
				SharedGate: stack(1, wide, cols), SharedUp: stack(1, wide, cols), SharedDown: stack(1, cols, wide),
				TopK: 2, Normalize: true,
			}
			in, gain, h, dst := x.random(rows, cols, 1), x.random(1, cols, 1), x.alloc(dtype.F32, rows, cols), x.random(rows, cols, 1)
			x.pass(backend.Pass{Batch: []backend.Seq{{N: rows}}}, rows == 1, func() {
				x.b.RMSNorm(h, in, gain, 1e-6)
				x.b.Experts(dst, h, e)
			})
			return [][]float32{x.read(dst), x.read(h)}
		})
	}
}

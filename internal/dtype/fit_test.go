package dtype

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// squaredError is that of a quantized matrix, summed over everything.
func squaredError(q, m *Matrix) float64 {
	sum := 0.0
	a, b := make([]float32, m.Cols), make([]float32, m.Cols)
	for r := range m.Rows {
		q.Row(a, r)
		m.Row(b, r)
		for i := range a {
			d := float64(a[i]) - float64(b[i])
			sum += d * d
		}
	}
	return sum
}

// TestFitIsBetter compares the two rules on numbers like a model's weights.
func TestFitIsBetter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	x := make([]float32, 64*256)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * 0.05)
	}
	m := Matrix{Rows: 64, Cols: 256, Type: F32, Data: make([]byte, 4*len(x))}
	FromF32(m.Data, F32, x)
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, scale := range []Type{F16, BF16, F32} {
			plain := valid(t)(Quantize(&m, bits, 64, scale))
			fitted := valid(t)(NewAffine(m.Rows, m.Cols, bits, 64, scale))
			if err := FitRows(&fitted, &m, 0, m.Rows); err != nil {
				t.Fatal(err)
			}
			ratio := squaredError(&fitted, &m) / squaredError(&plain, &m)
			t.Logf("%d bits, %v scales: %.3f of the squared error", bits, scale, ratio)
			if limit := map[bool]float64{true: 0.9, false: 1}[bits <= 4]; !(ratio <= limit) {
				t.Errorf("%d bits, %v scales: %.3f of the squared error, want at most %g", bits, scale, ratio, limit)
			}
		}
	}
}

// TestFitOfOddGroups checks groups that have no line through them, and refusals.
func TestFitOfOddGroups(t *testing.T) {
	fill := func(f func(i int) float32) Matrix {
		x := make([]float32, 64)
		for i := range x {
			x[i] = f(i)
		}
		m := Matrix{Rows: 1, Cols: 64, Type: F32, Data: make([]byte, 256)}
		FromF32(m.Data, F32, x)
		return m
	}
	for name, c := range map[string]struct {
		m   Matrix
		tol float64
		ok  bool
	}{
		"zeros":     {fill(func(int) float32 { return 0 }), 0, true},
		"constant":  {fill(func(int) float32 { return 0.5 }), 0, true},
		"two":       {fill(func(i int) float32 { return float32(i & 1) }), 1e-3, true},
		"tiny":      {fill(func(i int) float32 { return float32(i) * 1e-30 }), 1e-28, true},
		"outlier":   {fill(func(i int) float32 { return float32(i/63) * 100 }), 1e-2, true},
		"nan":       {fill(func(i int) float32 { return float32(math.Log(float64(i) - 5)) }), 0, false},
		"infinite":  {fill(func(i int) float32 { return 1 / float32(i) }), 0, false},
		"overflows": {fill(func(i int) float32 { return float32(i) * 1e30 }), 0, false},
	} {
		q := valid(t)(NewAffine(1, 64, 4, 64, F16))
		if err := FitRows(&q, &c.m, 0, 1); (err == nil) != c.ok {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		if e := math.Sqrt(squaredError(&q, &c.m) / 64); c.ok && e > c.tol {
			t.Errorf("%s: mean error %g", name, e)
		}
	}
}

func BenchmarkFitRows(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	x := make([]float32, 16*2048)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	m := Matrix{Rows: 16, Cols: 2048, Type: BF16, Data: make([]byte, 2*len(x))}
	FromF32(m.Data, BF16, x)
	q := valid(b)(NewAffine(16, 2048, 4, 64, BF16))
	b.SetBytes(int64(len(m.Data)))
	for b.Loop() {
		if err := FitRows(&q, &m, 0, 16); err != nil {
			b.Fatal(err)
		}
	}
}

// fitPlainly is fitGroup without its shortcuts.
func fitPlainly(q []uint8, w []float32, bits int, round func(float32) float32) (scale, bias float32, ok bool) {
	scale, bias, ok = quantizeGroup(q, w, bits)
	lo, hi := slices.Min(w), slices.Max(w)
	if !ok || lo == hi {
		return scale, bias, ok
	}
	code := func(v, scale, bias float32) float32 {
		x := min(max((v-bias)*(1/scale), 0), float32(int(1)<<bits-1))
		return (x + 0x1p23) - 0x1p23
	}
	top, n, least := float32(int(1)<<bits-1), float32(len(w)), float32(math.Inf(1))
	for _, part := range shrinks {
		s := (hi - lo) * part / top
		b := (hi+lo)/2 - s*top/2
		for range fitSteps {
			rs, rb := round(s), round(b)
			if !(rs > 0) {
				break
			}
			var err, x, xx, sum, xw float32
			for _, v := range w {
				c := code(v, rs, rb)
				d := rs*c + rb - v
				err += d * d
				x += c
				xx += c * c
				sum += v
				xw += c * v
			}
			if err < least {
				least, scale, bias = err, rs, rb
			}
			d := n*xx - x*x
			if !(d > 0) {
				break
			}
			s = (n*xw - x*sum) / d
			b = (sum - s*x) / n
		}
	}
	if least < float32(math.Inf(1)) {
		for i, v := range w {
			q[i] = uint8(code(v, scale, bias))
		}
	}
	return scale, bias, true
}

// TestFitLeavesOutNothingNew compares fitGroup with every step from every start, bit for bit.
func TestFitLeavesOutNothingNew(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := []func(float32) float32{
		func(x float32) float32 { return x },
		func(x float32) float32 { return FromF16(ToF16(x)) },
		func(x float32) float32 { return FromBF16(ToBF16(x)) },
	}
	for i := range 6000 {
		w := make([]float32, []int{32, 64, 128}[i%3])
		size := float32(math.Pow(10, float64(rng.IntN(12)-8)))
		for j := range w {
			switch w[j] = float32(rng.NormFloat64()) * size; rng.IntN(40) * (i % 2) {
			case 1:
				w[j] *= 20
			case 2:
				w[j] = 0
			case 3:
				w[j] = w[0]
			}
		}
		bits, round := []int{2, 3, 4, 5, 6, 8}[rng.IntN(6)], rounds[i/3%3]
		got, want := make([]uint8, len(w)), make([]uint8, len(w))
		s, b, ok := fitGroup(got, w, bits, round)
		ws, wb, wok := fitPlainly(want, w, bits, round)
		if math.Float32bits(s) != math.Float32bits(ws) || math.Float32bits(b) != math.Float32bits(wb) || ok != wok || !slices.Equal(got, want) {
			t.Fatalf("group %d, %d bits: scale %g, bias %g, %v, codes %v; want %g, %g, %v, %v", i, bits, s, b, ok, got, ws, wb, wok, want)
		}
	}
}

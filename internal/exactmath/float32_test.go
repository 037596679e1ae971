package exactmath

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// sameFloat reports whether a and b have the same bits; all NaNs are equal.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// ulps is the distance of got from the exact value, in units of want's last place.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e, -125)-24)
}

// TestErrorOfFunctions compares the functions with float64 ones over dense samples.
func TestErrorOfFunctions(t *testing.T) {
	logistic := func(x float64) float64 {
		if x < 0 {
			return math.Exp(x) / (1 + math.Exp(x))
		}
		return 1 / (1 + math.Exp(-x))
	}
	for _, f := range []struct {
		name     string
		ours     func(float32) float32
		exact    func(float64) float64
		from, to float32
		limit    float64
	}{
		{"exp", Exp32, math.Exp, ExpMin32, ExpMax32, 1},
		{"sigmoid", Sigmoid32, logistic, -87, 40, 2},
		{"silu", SiLU32, func(x float64) float64 { return x * logistic(x) }, -80, 80, 2},
		{"gelu", GELU32, func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 }, -12.9, 20, 6},
		{"gelu by tanh", GELUTanh32, func(x float64) float64 {
			return x * logistic(2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))
		}, -9.9, 20, 3},
		{"softplus", Softplus32, func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, -87, 87, 2},
	} {
		worst, at := 0.0, float32(0)
		check := func(x float32) {
			if e := ulps(f.ours(x), f.exact(float64(x))); !(e <= worst) {
				worst, at = e, x
			}
		}
		const samples = 400_000
		for i := range samples {
			check(f.from + (f.to-f.from)*(float32(i)/samples))
		}
		for b := uint32(1); b < math.Float32bits(f.to); b += 9973 { // every exponent
			x := math.Float32frombits(b)
			check(x)
			if -x >= f.from {
				check(-x)
			}
		}
		if t.Logf("%s: at most %.3f units in the last place, at %v", f.name, worst, at); worst > f.limit {
			t.Errorf("%s: error of %.3f units in the last place at %v, want at most %v", f.name, worst, at, f.limit)
		}
	}
}

func TestFunctionsAtTheEnds(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negative := math.Float32frombits(1 << 31)
	for _, c := range []struct {
		name    string
		f       func(float32) float32
		x, want float32
	}{
		{"exp", Exp32, 0, 1},
		{"exp", Exp32, negative, 1},
		{"exp", Exp32, inf, inf},
		{"exp", Exp32, -inf, 0},
		{"exp", Exp32, nan, nan},
		{"exp", Exp32, 88.8, inf},
		{"exp", Exp32, -87.4, 0},
		{"exp", Exp32, 1e30, inf},
		{"exp", Exp32, -1e30, 0},
		{"sigmoid", Sigmoid32, 0, 0.5},
		{"sigmoid", Sigmoid32, negative, 0.5},
		{"sigmoid", Sigmoid32, inf, 1},
		{"sigmoid", Sigmoid32, -inf, 0},
		{"sigmoid", Sigmoid32, nan, nan},
		{"sigmoid", Sigmoid32, 200, 1},
		{"silu", SiLU32, inf, nan},
		{"silu", SiLU32, -inf, nan},
		{"silu", SiLU32, 0, 0},
		{"silu", SiLU32, -200, 0},
		{"silu", SiLU32, nan, nan},
		{"silu", SiLU32, 100, 100},
		{"gelu", GELU32, inf, inf},
		{"gelu", GELU32, -inf, 0},
		{"gelu", GELU32, nan, nan},
		{"gelu", GELU32, 0, 0},
		{"gelu", GELU32, 1e30, 1e30},
		{"gelu", GELU32, -1e30, 0},
		{"gelu", GELU32, -14, 0},
		{"gelu by tanh", GELUTanh32, inf, inf},
		{"gelu by tanh", GELUTanh32, -inf, 0},
		{"gelu by tanh", GELUTanh32, nan, nan},
		{"gelu by tanh", GELUTanh32, 0, 0},
		{"gelu by tanh", GELUTanh32, 1e30, 1e30},
		{"gelu by tanh", GELUTanh32, -1e30, 0},
		{"gelu by tanh", GELUTanh32, -12, 0},
		{"softplus", Softplus32, inf, inf},
		{"softplus", Softplus32, -inf, 0},
		{"softplus", Softplus32, nan, nan},
		{"softplus", Softplus32, 100, 100},
	} {
		if got := c.f(c.x); !sameFloat(got, c.want) {
			t.Errorf("%s(%v) = %v, want %v", c.name, c.x, got, c.want)
		}
	}
}

// TestFMARoundsOnce compares FMA32 with exact arithmetic, above all where rounding twice
// would differ.
func TestFMARoundsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	check := func(a, b, c float32) {
		t.Helper()
		x := new(big.Float).SetPrec(400).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		x.Add(x, big.NewFloat(float64(c)))
		want, _ := x.Float32()
		if got := FMA32(a, b, c); got != want {
			t.Fatalf("FMA32(%g, %g, %g) = %g, want %g", a, b, c, got, want)
		}
		y := []float32{c}
		if AXPY32(y, []float32{b}, a); y[0] != want {
			t.Fatalf("AXPY32 gives %g for fma(%g, %g, %g), want %g", y[0], a, b, c, want)
		}
	}
	for range 200_000 {
		a, b := math.Float32frombits(rng.Uint32()&^(3<<29)|1<<29), float32(rng.NormFloat64())
		check(a, b, float32(rng.NormFloat64()))
		// A product just beside the middle between two sums.
		c := float32(1 + rng.IntN(1<<22))
		tiny := float32(math.Ldexp(1+rng.Float64(), -60))
		check(1, tiny, c)
		check(0.5+1.0/(1<<23), float32(math.Ldexp(float64(rng.IntN(1<<23)), -20)), c)
		// Results without full precision.
		check(float32(math.Ldexp(rng.Float64(), -80)), float32(math.Ldexp(rng.NormFloat64(), -64)), float32(math.Ldexp(rng.NormFloat64(), -130)))
	}
	// 1 + 2^-24 is halfway; the following digits decide, however small.
	const half = 1.0 / (1 << 24)
	check(1+1.0/(1<<12), half, 1)
	check(float32(math.Ldexp(1, -75)), float32(math.Ldexp(1, -75)), 1)
	check(-float32(math.Ldexp(1, -75)), float32(math.Ldexp(1, -75)), 1+half*2)
}

// TestSincosIsClose compares with the standard library over the positions of a long text.
func TestSincosIsClose(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 100_000 {
		x := float32(rng.Float64() * 262144)
		if rng.IntN(2) == 0 {
			x = float32(rng.Float64())
		}
		s, c := Sincos32(x)
		ws, wc := math.Sincos(float64(x))
		if math.Abs(float64(s)-ws) > 6.1e-8 || math.Abs(float64(c)-wc) > 6.1e-8 {
			t.Fatalf("Sincos32(%v) = %v, %v, want %v, %v", x, s, c, ws, wc)
		}
	}
}

// TestSincosOfHalvesIsCorrectlyRounded computes sines and cosines of all halves with 128 bits. Angles of
// input rotations are halves.
func TestSincosOfHalvesIsCorrectlyRounded(t *testing.T) {
	const prec = 128
	number := func() *big.Float { return new(big.Float).SetPrec(prec) }
	pi, ok := number().SetString("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")
	if !ok {
		t.Fatal("no number")
	}
	quarter := number().Quo(pi, big.NewFloat(2))
	series := func(r, first *big.Float, k int64) float32 {
		sum, term, square := number().Set(first), number().Set(first), number().Mul(r, r)
		for ; k < 34; k += 2 {
			term.Mul(term, square).Quo(term, number().SetInt64(-k*(k+1)))
			sum.Add(sum, term)
		}
		f, _ := sum.Float32()
		return f
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for h := 0; h < 0x7c00; h += step {
		exponent, fraction := h>>10, float64(h&1023)/1024
		x := math.Ldexp(1+fraction, exponent-15)
		if exponent == 0 {
			x = math.Ldexp(fraction, -14)
		}
		n := math.Round(x * 2 / math.Pi)
		r := number().Sub(number().SetFloat64(x), number().Mul(number().SetFloat64(n), quarter))
		s, c := series(r, r, 2), series(r, number().SetInt64(1), 1)
		for range int(n) & 3 {
			s, c = c, -s
		}
		gotSin, gotCos := Sincos32(float32(x))
		if gotSin != s || gotCos != c {
			t.Fatalf("Sincos32(%g) = %g, %g, want %g, %g", x, gotSin, gotCos, s, c)
		}
	}
}

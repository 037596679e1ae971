package cpu

import (
	"math"
	"testing"
)

// ulps is the distance of got from the exact value, in units of want's last place.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e, -125)-24)
}

// TestErrorOfFunctions holds the functions against float64 ones over dense samples.
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
		{"exp", exp, math.Exp, expMin, expMax, 1},
		{"sigmoid", sigmoid, logistic, -87, 40, 2},
		{"silu", silu, func(x float64) float64 { return x * logistic(x) }, -80, 80, 2},
		{"softplus", softplus, func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, -87, 87, 2},
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
		{"exp", exp, 0, 1},
		{"exp", exp, negative, 1},
		{"exp", exp, inf, inf},
		{"exp", exp, -inf, 0},
		{"exp", exp, nan, nan},
		{"exp", exp, 88.8, inf},
		{"exp", exp, -87.4, 0},
		{"exp", exp, 1e30, inf},
		{"exp", exp, -1e30, 0},
		{"sigmoid", sigmoid, 0, 0.5},
		{"sigmoid", sigmoid, negative, 0.5},
		{"sigmoid", sigmoid, inf, 1},
		{"sigmoid", sigmoid, -inf, 0},
		{"sigmoid", sigmoid, nan, nan},
		{"sigmoid", sigmoid, 200, 1},
		{"silu", silu, inf, nan},
		{"silu", silu, -inf, nan},
		{"silu", silu, 0, 0},
		{"silu", silu, -200, 0},
		{"silu", silu, nan, nan},
		{"silu", silu, 100, 100},
		{"softplus", softplus, inf, inf},
		{"softplus", softplus, -inf, 0},
		{"softplus", softplus, nan, nan},
		{"softplus", softplus, 100, 100},
	} {
		if got := c.f(c.x); !sameFloat(got, c.want) {
			t.Errorf("%s(%v) = %v, want %v", c.name, c.x, got, c.want)
		}
	}
}

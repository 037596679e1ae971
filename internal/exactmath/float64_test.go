package exactmath

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// bigLog is the natural logarithm to 160 bits, by the series of atanh.
func bigLog(x float64) *big.Float {
	const precision = 160
	atanh2 := func(s *big.Float) *big.Float { // 2·atanh(s)
		sum, power := new(big.Float).SetPrec(precision), new(big.Float).SetPrec(precision).Set(s)
		square := new(big.Float).SetPrec(precision).Mul(s, s)
		for n := int64(1); n < 130; n += 2 {
			term := new(big.Float).SetPrec(precision).Quo(power, new(big.Float).SetInt64(n))
			sum.Add(sum, term)
			power.Mul(power, square)
		}
		return sum.Mul(sum, big.NewFloat(2))
	}
	ratio := func(a, b float64) *big.Float { // (a-b)/(a+b)
		p, q := new(big.Float).SetPrec(precision).SetFloat64(a), new(big.Float).SetPrec(precision).SetFloat64(b)
		top := new(big.Float).SetPrec(precision).Sub(p, q)
		return top.Quo(top, p.Add(p, q))
	}
	m, e := math.Frexp(x)
	result := atanh2(ratio(m, 1))
	ln2 := atanh2(ratio(2, 1))
	return result.Add(result, ln2.Mul(ln2, new(big.Float).SetInt64(int64(e))))
}

func TestLogAccuracy(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	worst := 0.0
	check := func(x float64) {
		want := bigLog(x)
		nearest, _ := want.Float64()
		ulp := math.Nextafter(math.Abs(nearest), math.Inf(1)) - math.Abs(nearest)
		diff, _ := want.Sub(want, big.NewFloat(Log(x))).Float64()
		worst = max(worst, math.Abs(diff)/ulp)
	}
	for range 1500 {
		check(r.Float64() + 0x1p-53)
		check(1 - r.Float64()*math.Exp2(-50*r.Float64()))
		check(math.Exp2(120*r.Float64() - 60))
	}
	for _, x := range []float64{0x1p-53, 1 - 0x1p-53, 1 + 0x1p-52, math.Sqrt2, math.Sqrt2 / 2, 2, 1.5, 36.7} {
		check(x)
	}
	t.Logf("worst error of Log: %.3f ulp", worst)
	if worst > 1.1 {
		t.Errorf("worst error of Log is %.3f ulp, want at most 1.1", worst)
	}
	if got := Log(1); got != 0 {
		t.Errorf("Log(1) = %v", got)
	}
}

// TestExpAtTheEnds has arguments whose result is 0 or infinite, and others near them.
func TestExpAtTheEnds(t *testing.T) {
	for _, x := range []float64{-2000, -5000, -1e4, -1e30, -math.MaxFloat64, math.Inf(-1), 2000, 1e4, 1e30, math.MaxFloat64, math.Inf(1), math.NaN(), -690, 700} {
		got, want := Exp(x), math.Exp(x)
		if same := got == want || want != want && got != got; !same && !(math.Abs(got/want-1) < 1e-6) {
			t.Errorf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
}

// TestBitsAreFrozen records the bits of the functions that models are loaded with.
func TestBitsAreFrozen(t *testing.T) {
	const want = 0x2ea81047bfdb338b
	h := fnv.New64a()
	put := func(x float64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
		_, _ = h.Write(b[:]) // never fails
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		x := r.Float64() // from integers alone
		put(Exp(float64(20*x) - 15))
		put(LogOfExp(float64(1e8*x) + 0x1p-53))
		put(LogOfExp(x + 0x1p-53))
	}
	if got := h.Sum64(); got != want {
		t.Errorf("hash %#x, want %#x", got, uint64(want))
	}
}

package sampling

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
)

// TestMathBitsAreFrozen pins the bits of every function a draw depends on, so that
// a processor or compiler that computes otherwise shows.
func TestMathBitsAreFrozen(t *testing.T) {
	const want = 0x72cfb54995ff4582
	h := fnv.New64a()
	put := func(x uint64) {
		var b [8]byte
		for i := range b {
			b[i] = byte(x >> (8 * i))
		}
		_, _ = h.Write(b[:])
	}
	sc := newScale(17.3, 0.7)
	for i := range 50_000 {
		x := mix(uint64(i))
		put(math.Float64bits(exactmath.Log(unit(x))))
		put(math.Float64bits(gumbel(x)))
		z := float32(unit(x)*40 - 22.7)
		put(sc.level(z))
		put(weight(sc.level(z)))
		put(math.Float64bits(likelihood(sc.level(z))))
		put(math.Float64bits(sc.score(z) + gumbel(x)))
	}
	if got := h.Sum64(); got != want {
		t.Errorf("hash %#x, want %#x", got, uint64(want))
	}
}

func TestWeightAccuracy(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	worst := 0.0
	for i := range 200_000 {
		level := uint64(r.Int64N(floorLevel))
		if i%4 == 0 {
			level &^= 1<<(i%21) - 1 // on and beside the seams of the tables
		}
		want := math.Exp2(weightBits - float64(level)/octave)
		if got := float64(weight(level)); math.Abs(got-want) > 2+want*0x1p-30 {
			t.Fatalf("weight(%d) = %v, want %v", level, got, want)
		}
		worst = max(worst, math.Abs(likelihood(level)-want)/want)
	}
	t.Logf("worst relative error of likelihood: %.3g", worst)
	if worst > 0x1p-30 {
		t.Errorf("worst relative error of likelihood is %v, want at most 2^-30", worst)
	}
	if got := weight(0); got != 1<<weightBits {
		t.Errorf("weight(0) = %d", got)
	}
	for _, level := range []uint64{floorLevel, floorLevel + 1, 1 << 40, 1<<62 - 1} {
		if weight(level) != 0 || likelihood(level) != 0 {
			t.Errorf("level %d weighs %d, %v", level, weight(level), likelihood(level))
		}
	}
}

func TestScaleLowestIsExact(t *testing.T) {
	for _, top := range []float32{0, 1e-30, 20, -20, 3e38, -3e38, math.MaxFloat32} {
		for _, temperature := range []float64{5e-324, 1e-30, 0.01, 0.8, 1, 1 / math.Ln2, 100, 1e30, math.MaxFloat64} {
			sc := newScale(top, temperature)
			for _, n := range []uint64{1, 100, octave, floorLevel - 1, floorLevel} {
				z := sc.lowest(n)
				if sc.level(z) >= n {
					t.Errorf("top %v temperature %v: level(lowest(%d) = %v) = %d", top, temperature, n, z, sc.level(z))
				}
				below := math.Nextafter32(z, float32(math.Inf(-1)))
				if below >= -math.MaxFloat32 && sc.level(below) < n {
					t.Errorf("top %v temperature %v: %v is below lowest(%d) = %v and has level %d", top, temperature, below, n, z, sc.level(below))
				}
			}
		}
	}
}

func TestScaleLevelOfOddities(t *testing.T) {
	for _, temperature := range []float64{5e-324, 1e-300, 1, math.MaxFloat64} {
		sc := newScale(3, temperature)
		if got := sc.level(3); got != 0 {
			t.Errorf("temperature %v: the highest logit has level %d", temperature, got)
		}
		if got := sc.score(3); got != 0 {
			t.Errorf("temperature %v: the highest logit has score %v", temperature, got)
		}
		for _, z := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			if got := sc.level(z); got != floorLevel {
				t.Errorf("temperature %v: logit %v has level %d", temperature, z, got)
			}
		}
	}
}

func TestMassesEqualWeights(t *testing.T) {
	for _, c := range []struct {
		temperature float64
		n           int
	}{{0.05, 1000}, {0.8, 64}, {0.8, 1001}, {5, 63}, {1e-300, 200}, {1e300, 200}} {
		row := oddRow(rand.New(rand.NewPCG(9, uint64(c.n))), c.n)
		blocks := topk.Maxima(nil, row)
		sc := newScale(topk.Max(blocks), c.temperature)
		var sums, want [coarseCount]uint64
		var wantTotal uint64
		for _, z := range row {
			level := sc.level(z)
			want[min(level>>coarseShift, coarseCount-1)] += weight(level)
			wantTotal += weight(level)
		}
		got := sc.masses(&sums, row, blocks, sc.lowest(floorLevel), nil)
		if got != wantTotal || sums != want {
			t.Errorf("%+v: total %d, want %d; sums equal: %v", c, got, wantTotal, sums == want)
		}
	}
}

package exactmath

import (
	"math"
	"testing"
)

// TestCap compares Cap32 with float64 over all sizes of numbers.
func TestCap(t *testing.T) {
	for _, c := range []float32{30, 50, 0.3} {
		worst, at, last := 0.0, float32(0), -c
		for x := -12 * c; x < 12*c; x += c / 8192 {
			got, want := Cap32(x, c), float64(c)*math.Tanh(float64(x)/float64(c))
			if e := math.Abs(float64(got)-want) / float64(c); e > worst {
				worst, at = e, x
			}
			if got < last {
				t.Fatalf("at %v, Cap32(%v) = %v is below the one before", c, x, got)
			}
			last = got
		}
		if worst > 0x1p-23 {
			t.Errorf("at %v: error of %v times it, at %v", c, worst, at)
		}
	}
	inf := float32(math.Inf(1))
	for _, k := range [][2]float32{
		{0, 0}, {1, 0.9996298}, {10, 9.6453821}, {30, 22.8478247}, {100, 29.9237390}, {inf, 30}, {-inf, -inf}, {-math.MaxFloat32, -30}, {float32(math.NaN()), float32(math.NaN())},
	} {
		if got := Cap32(k[0], 30); !sameFloat(got, k[1]) && !(math.Abs(float64(got-k[1])) < 4e-6) {
			t.Errorf("Cap32(%v, 30) = %v, want %v", k[0], got, k[1])
		}
	}
}

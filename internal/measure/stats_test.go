package measure

import (
	"math"
	"slices"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{5, 1}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 100, 2, 0}, 3},
	} {
		if got := Median(slices.Clone(c.x)); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.x, got, c.want)
		}
	}
}

func TestQuantileLiesBetweenMeasurements(t *testing.T) {
	x := []float64{40, 10, 30, 20, 50}
	for q, want := range map[float64]float64{0: 10, 0.25: 20, 0.5: 30, 0.9: 46, 0.99: 49.6, 1: 50} {
		if got := Quantile(slices.Clone(x), q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestSpreadHoldsTheMedian(t *testing.T) {
	quiet := NewSpread([]float64{1.31, 1.3, 1.32, 1.3, 1.31})
	if !near(quiet.Median, 1.31) || quiet.Low < 1.3-1e-9 || quiet.High > 1.32+1e-9 || quiet.Noisy() {
		t.Errorf("%+v, noisy %v", quiet, quiet.Noisy())
	}
	loud := NewSpread([]float64{1.1, 1.3, 1.5, 1.2, 1.4})
	if !near(loud.Median, 1.3) || loud.Low > 1.2 || loud.High < 1.4 || !loud.Noisy() {
		t.Errorf("%+v, noisy %v", loud, loud.Noisy())
	}
	if again := NewSpread([]float64{1.1, 1.3, 1.5, 1.2, 1.4}); again != loud {
		t.Errorf("the same measurements give %v and %v", loud, again)
	}
	if none := NewSpread(nil); none != (Spread{}) {
		t.Errorf("nothing gives %+v", none)
	}
}

// The mean is geometric: twice as fast and half as fast cancel. One
// disturbed measurement in each group has no effect.
func TestPooledIsTheMeanOfMedians(t *testing.T) {
	got := Pooled([][]float64{{2, 2, 9}, {0.5, 0.5, 0.1}})
	if math.Abs(got.Median-1) > 1e-12 {
		t.Errorf("%+v", got)
	}
	one, many := NewSpread([]float64{1, 1.1, 1.2, 1.3, 1.4}), Pooled(slices.Repeat([][]float64{{1, 1.1, 1.2, 1.3, 1.4}}, 20))
	if many.High-many.Low > (one.High-one.Low)/2 {
		t.Errorf("one thing %v, twenty of them %v", one, many)
	}
}

// The published case of the specification: 45.6 % of the tokens came from drafts, and it
// was 1.546 times as fast.
func TestCostModelOnThePublishedCase(t *testing.T) {
	f := 0.456
	p, cost := f/(1-f), 1.190
	if s := Speedup(Gain([]float64{p}), cost-0.1, 0.1); math.Abs(s-1.546) > 0.002 {
		t.Errorf("speed-up %v", s)
	}
	if s := Speedup(Gain([]float64{1}), cost-0.1, 0.1); !near(s, 2/cost) {
		t.Errorf("with all draft tokens accepted %v", s)
	}
	even := BreakEven(1, cost-0.1, 0.1)
	if math.Abs(even-0.19) > 1e-9 || !near(Speedup(Gain([]float64{even}), cost-0.1, 0.1), 1) {
		t.Errorf("breaks even at %v", even)
	}
	// Three draft tokens, of which just enough are accepted.
	even = BreakEven(3, 1.4, 0.3)
	if accepted := []float64{even + 0.1, even, even - 0.1}; !near(even, 0.7/3) || !near(Speedup(Gain(accepted), 1.4, 0.3), 1) {
		t.Errorf("three draft tokens break even at %v", even)
	}
}

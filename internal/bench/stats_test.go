package bench

import (
	"math"
	"slices"
	"testing"
)

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
		if got := median(slices.Clone(c.x)); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.x, got, c.want)
		}
	}
}

func TestQuantileLiesBetweenMeasurements(t *testing.T) {
	x := []float64{40, 10, 30, 20, 50}
	for q, want := range map[float64]float64{0: 10, 0.25: 20, 0.5: 30, 0.9: 46, 0.99: 49.6, 1: 50} {
		if got := quantile(slices.Clone(x), q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestSpreadHoldsTheMedian(t *testing.T) {
	quiet := spread([]float64{1.31, 1.3, 1.32, 1.3, 1.31})
	if !near(quiet.Median, 1.31) || quiet.Low < 1.3-1e-9 || quiet.High > 1.32+1e-9 || quiet.Noisy() {
		t.Errorf("%+v, noisy %v", quiet, quiet.Noisy())
	}
	loud := spread([]float64{1.1, 1.3, 1.5, 1.2, 1.4})
	if !near(loud.Median, 1.3) || loud.Low > 1.2 || loud.High < 1.4 || !loud.Noisy() {
		t.Errorf("%+v, noisy %v", loud, loud.Noisy())
	}
	if again := spread([]float64{1.1, 1.3, 1.5, 1.2, 1.4}); again != loud {
		t.Errorf("the same measurements give %v and %v", loud, again)
	}
	if none := spread(nil); none != (Spread{}) {
		t.Errorf("nothing gives %+v", none)
	}
}

// The mean over things is geometric, so that twice as fast and half as fast is as fast; and
// one moment of noise in each does not matter.
func TestPooledIsTheMeanOfMedians(t *testing.T) {
	got := pooled([][]float64{{2, 2, 9}, {0.5, 0.5, 0.1}})
	if math.Abs(got.Median-1) > 1e-12 {
		t.Errorf("%+v", got)
	}
	one, many := spread([]float64{1, 1.1, 1.2, 1.3, 1.4}), pooled(slices.Repeat([][]float64{{1, 1.1, 1.2, 1.3, 1.4}}, 20))
	if many.High-many.Low > (one.High-one.Low)/2 {
		t.Errorf("one thing %v, twenty of them %v", one, many)
	}
}

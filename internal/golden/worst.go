package golden

import (
	"fmt"
	"math"
	"testing"
)

// Worst keeps the largest absolute difference of the comparisons given to it.
// The zero value is ready for use.
type Worst struct {
	diff     float64
	where    string // of the largest difference
	got      float32
	want     float32
	compared int
	err      error // the first comparison that cannot be measured
}

// Add compares two arrays. what names them in the report: "case 3 logits".
// Arrays of different lengths and NaN or infinite results fail
// with any tolerance.
func (w *Worst) Add(what string, got, want []float32) {
	if len(got) != len(want) {
		w.fail(fmt.Errorf("%s: %d numbers, want %d", what, len(got), len(want)))
		return
	}
	for i, g := range got {
		d := math.Abs(float64(g) - float64(want[i]))
		if math.IsNaN(d) || math.IsInf(d, 0) {
			w.fail(fmt.Errorf("%s[%d]: %v, want %v", what, i, g, want[i]))
			return
		}
		if d > w.diff || w.compared == 0 {
			w.diff, w.where, w.got, w.want = d, fmt.Sprintf("%s[%d]", what, i), g, want[i]
		}
		w.compared++
	}
}

func (w *Worst) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Err returns nil if something was compared and nothing differs by more than tol.
func (w *Worst) Err(tol float64) error {
	switch {
	case w.err != nil:
		return w.err
	case w.compared == 0:
		return fmt.Errorf("nothing was compared")
	case w.diff > tol:
		return fmt.Errorf("%s = %v, want %v: off by %.3g, tolerance %g", w.where, w.got, w.want, w.diff, tol)
	}
	return nil
}

// Check reports the worst error to the test's log and fails the test if Err does.
// what names the comparison as a whole: "logits".
func (w *Worst) Check(tb testing.TB, what string, tol float64) {
	tb.Helper()
	if err := w.Err(tol); err != nil {
		tb.Errorf("%s: %v", what, err)
		return
	}
	tb.Logf("%s: worst error %.3g at %s, tolerance %g, %d numbers", what, w.diff, w.where, tol, w.compared)
}

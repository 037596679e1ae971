package measure

import (
	"slices"
	"testing"
)

// A pass over more rows that seems cheaper shows that the one before was disturbed. Kinds that
// were not measured take the next one's cost.
func TestCostsRise(t *testing.T) {
	got := rising([][]float64{{1, 9, 9}, nil, {3, 2, 4}, {7}, {6, 8}}, 0.5, 1)
	if want := []float64{3, 3, 3, 7, 7}; !slices.Equal(got, want) {
		t.Errorf("costs %v, want %v", got, want)
	}
	if got := rising([][]float64{{5}, {4}, {4.5}}, 0.25, 0.5); !slices.Equal(got, []float64{8, 8, 9}) {
		t.Errorf("costs %v", got)
	}
}

package split

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// TestRegionsAreSets compares regions with sets of cells, over random changes.
func TestRegionsAreSets(t *testing.T) {
	const side = 9
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() rect {
		r, c := rng.IntN(side), rng.IntN(side)
		return rect{r, r + rng.IntN(side-r+1), c, c + rng.IntN(side-c+1)}
	}
	each := func(a rect, f func(cell [2]int)) {
		for r := a.r0; r < a.r1; r++ {
			for c := a.c0; c < a.c1; c++ {
				f([2]int{r, c})
			}
		}
	}
	for range 200 {
		var g region
		cells := map[[2]int]bool{}
		for range 30 {
			a := random()
			if rng.IntN(2) == 0 {
				g = g.plus(a)
				each(a, func(x [2]int) { cells[x] = true })
			} else {
				g = g.less(a)
				each(a, func(x [2]int) { delete(cells, x) })
			}
			whole := rect{0, side, 0, side}
			if g.within(whole) != len(cells) {
				t.Fatalf("%v has %d cells, want %d", g, g.within(whole), len(cells))
			}
			b := random()
			in, out := 0, 0
			each(b, func(x [2]int) {
				if cells[x] {
					in++
				} else {
					out++
				}
			})
			if n := g.and(b).within(whole); n != in || g.within(b) != in {
				t.Fatalf("%v has %d cells of %v, want %d", g, n, b, in)
			}
			if n := b.minus(g).within(whole); n != out {
				t.Fatalf("%v has %d cells beyond %v, want %d", b, n, g, out)
			}
		}
	}
}

// TestRowsBecomeOneRectangle keeps lists short.
func TestRowsBecomeOneRectangle(t *testing.T) {
	var g region
	for _, r := range []int{3, 1, 2, 0, 4} {
		g = g.plus(rect{r, r + 1, 0, 8})
	}
	if len(g) != 1 || g[0] != (rect{0, 5, 0, 8}) {
		t.Errorf("rows one by one are %v", g)
	}
}

// TestRowsOfHeadsAreWholeRows finds the part of a memory that a view has whose rows are pieces of the memory's.
func TestRowsOfHeadsAreWholeRows(t *testing.T) {
	m := &memory{rows: 8, cols: 12}
	for _, c := range []struct {
		rows, cols, stride, offset int
		want                       rect
		exact                      bool
	}{
		{6, 4, 4, 24, rect{2, 4, 0, 12}, true},
		{5, 4, 4, 24, rect{2, 4, 0, 12}, false},
		{6, 4, 4, 28, rect{2, 5, 0, 12}, false},
		{2, 3, 6, 0, rect{0, 1, 0, 12}, false},
	} {
		got, exact := m.rect(backend.Tensor{Rows: c.rows, Cols: c.cols, Stride: c.stride, Offset: c.offset})
		if got != c.want || exact != c.exact {
			t.Errorf("%+v: %v, %t", c, got, exact)
		}
	}
}

package conformance

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/topk"
)

// top compares answers with what the contract says, worked out by sorting.
func (c *checker) top() {
	c.on("Top")
	for _, s := range [][2]int{{1, 5000}, {3, 1000}, {17, 130}, {40, 33}, {2, 1}, {0, 70}} {
		what := fmt.Sprintf("%d×%d", s[0], s[1])
		for _, views := range []bool{false, true} {
			c.holds(fmt.Sprintf("%s, views %v", what, views), func(r *rig) (got, want []float32) {
				r.views = views
				rows := r.logits(s[0], s[1])
				x := r.tensor(s[0], s[1], rows)
				asks := r.asks(s[0], s[1])
				best, err := r.b.Top(x, asks)
				must(err)
				for i, b := range best {
					a := asks[i]
					row := rows[i*s[1]:][:cmp.Or(a.Cols, s[1])]
					got = append(got, spread(b)...)
					want = append(want, spread(sortedTop(row, a))...)
					drawn := int32(-1)
					if _, ok := c.b.(backend.Drawer); a.Draw != nil && (ok || b.Drawn >= 0) {
						drawn = Exactly(new(sampling.Drawer).Draw(Plain(*a.Draw), OwnOf(rows[i*s[1]:(i+1)*s[1]], *a.Draw)))
					}
					got, want = append(got, float32(b.Drawn)), append(want, float32(drawn))
					if sum := sumOf(row, a); math.Abs(float64(b.Sum)-sum) > 1e-4*sum {
						must(fmt.Errorf("row %d: sum %v, want %v", i, b.Sum, sum))
					}
				}
				got, want = append(got, r.read(x)...), append(want, rows...)
				return got, want
			})
		}
		c.holds(what+" and each row alone", func(r *rig) (got, want []float32) {
			x, asks := r.tensor(s[0], s[1], r.logits(s[0], s[1])), r.asks(s[0], s[1])
			best, err := r.b.Top(x, asks)
			must(err)
			for _, b := range best {
				got = append(got, spread(b)...)
			}
			eachRow(s[0], func(i, j int) {
				alone, err := r.b.Top(x.RowRange(i, j), asks[i:j])
				must(err)
				want = append(want, spread(alone[0])...)
			})
			return got, want
		})
	}
}

// logits are rows with ties, zeros of both signs, infinities and what is not a number; one of
// them is minus infinity alone.
func (r *rig) logits(rows, cols int) []float32 {
	special := []float32{
		float32(math.Inf(-1)), float32(math.Inf(1)), float32(math.NaN()), math.Float32frombits(0xffc00001),
		0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32,
	}
	x := r.list(rows * cols)
	for i := range x {
		switch at := r.rng.IntN(400); {
		case at < len(special):
			x[i] = special[at]
		case i/cols%2 == 1:
			x[i] = float32(math.Round(float64(x[i]))) - 3
		}
		if rows > 2 && i/cols == 2 {
			x[i] = special[0]
		}
	}
	return x
}

// asks are as many, no two neighbors alike.
func (r *rig) asks(rows, cols int) []backend.Ask {
	blocks := (cols + topk.Block - 1) / topk.Block
	asks, draws := make([]backend.Ask, rows), r.howToDraw(rows, cols)
	for i := range asks {
		a := &asks[i]
		if i%3 < 2 {
			a.Draw = &draws[i]
		}
		a.K, a.Sum = []int{2, 0, 1, blocks, blocks + 3, 20}[i%6], i%5 < 3
		if i%4 == 3 {
			a.Cols = 1 + r.rng.IntN(cols)
		}
		for range r.rng.IntN(5) * (i % 2) {
			a.Also = append(a.Also, int32(r.rng.IntN(cmp.Or(a.Cols, cols))))
		}
	}
	return asks
}

// spread is an answer as a list of numbers.
func spread(b backend.Best) []float32 {
	x := []float32{b.Low, float32(len(b.IDs)), float32(len(b.Also))}
	for _, id := range b.IDs {
		x = append(x, float32(id))
	}
	return slices.Concat(x, b.Logits, b.Also)
}

// sortedTop is Top of a row.
func sortedTop(row []float32, a backend.Ask) backend.Best {
	best := backend.Best{Low: float32(math.Inf(1))}
	for _, id := range a.Also {
		best.Also = append(best.Also, row[id])
	}
	if a.K == 0 {
		return best
	}
	var maxima []float32
	for block := range slices.Chunk(row, topk.Block) {
		highest := float32(math.Inf(-1))
		for _, z := range block {
			if z > highest {
				highest = min(z, math.MaxFloat32)
			}
		}
		if highest >= -math.MaxFloat32 {
			maxima = append(maxima, highest)
		}
	}
	slices.Sort(maxima)
	best.Low = -math.MaxFloat32
	if n := len(maxima); n >= a.K {
		best.Low = maxima[n-a.K]
	}
	if best.Low == 0 {
		best.Low = 0 // of either sign
	}
	for id, z := range row {
		if z >= best.Low {
			best.IDs, best.Logits = append(best.IDs, int32(id)), append(best.Logits, z)
		}
	}
	return best
}

// sumOf is the sum that Top is asked for.
func sumOf(row []float32, a backend.Ask) (sum float64) {
	if !a.Sum || a.K == 0 {
		return 0
	}
	highest := math.Inf(-1)
	for _, z := range row {
		if z >= -math.MaxFloat32 {
			highest = max(highest, float64(min(z, math.MaxFloat32)))
		}
	}
	for _, z := range row {
		if z >= -math.MaxFloat32 {
			sum += exactmath.Exp(float64(min(z, math.MaxFloat32)) - highest)
		}
	}
	return sum
}

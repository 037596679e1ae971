package sampling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/topk"
)

func TestLogProbsEqualFloat64(t *testing.T) {
	for i := range 300 {
		r := rand.New(rand.NewPCG(41, uint64(i)))
		row := oddRow(r, 1+r.IntN(500))
		var sum float64
		top := float64(topk.Max(row))
		ranked := make([]int32, 0, len(row))
		for id, z := range row {
			if z > float32(math.Inf(-1)) {
				sum += math.Exp(float64(z) - top)
				ranked = append(ranked, int32(id))
			}
		}
		slices.SortStableFunc(ranked, func(a, b int32) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return 0
		})
		exact := func(id int32) float64 {
			if !(row[id] > float32(math.Inf(-1))) {
				return math.Inf(-1)
			}
			return float64(row[id]) - top - math.Log(sum)
		}
		id, n := int32(r.IntN(len(row))), r.IntN(len(row)+10)
		chosen, best := LogProbs(row, id, n)
		if want := exact(id); float64(chosen) != want && math.Abs(float64(chosen)-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("case %d: id %d has %v, want %v", i, id, chosen, want)
		}
		ranked = ranked[:min(n, len(ranked))]
		if len(best) != len(ranked) {
			t.Fatalf("case %d: %d of the best, want %d", i, len(best), len(ranked))
		}
		for j, b := range best {
			if want := exact(b.ID); b.ID != ranked[j] || math.Abs(float64(b.LogProb)-want) > 1e-6*(1+math.Abs(want)) {
				t.Fatalf("case %d: best[%d] = %+v, want id %d, %v", i, j, b, ranked[j], want)
			}
		}
	}
}

func TestLogProbsOfOddRows(t *testing.T) {
	low := float32(math.Inf(-1))
	for _, c := range []struct {
		row    []float32
		id     int32
		chosen float32
		best   int
	}{
		{nil, 0, low, 0},
		{[]float32{float32(math.NaN()), low}, 0, low, 0},
		{[]float32{1}, -1, low, 1},
		{[]float32{1}, 1, low, 1},
		{[]float32{1}, 0, 0, 1},
		{[]float32{0, float32(math.Inf(1))}, 1, 0, 2},
	} {
		chosen, best := LogProbs(c.row, c.id, 5)
		if chosen != c.chosen || len(best) != c.best {
			t.Errorf("%v: id %d has %v with %d of the best, want %v with %d", c.row, c.id, chosen, len(best), c.chosen, c.best)
		}
	}
}

//go:build unix

package kernel

import (
	"fmt"
	"math"
	"testing"
)

func TestVectorMixEqualsGeneric(t *testing.T) {
	trials := 200
	if testing.Short() {
		trials = 20
	}
	for _, x := range newVectorTrials(t) {
		for i := range trials {
			x.mix(1+x.rng.IntN(100), 1+x.rng.IntN(MixKeys), i%4 == 0)
		}
	}
}

// mix takes a block of keys of dim columns, with scores and sums from before.
func (x *vectorTrial) mix(dim, count int, special bool) {
	x.t.Helper()
	what := fmt.Sprintf("dim=%d count=%d", dim, count)
	tiles, columns := (count+MixTile-1)/MixTile, (dim+MixTile-1)/MixTile*MixTile
	queries, pqueries := x.fill(0, dim*MixQueries, special)
	across := dim + x.rng.IntN(3)
	keys, pkeys := x.fill(1, (tiles*MixTile-1)*across+dim, special)
	scores, want := x.guard[2][trialSize-tiles*MixTile*MixQueries:], make([]float32, tiles*MixTile*MixQueries)
	x.v.Mix.Product(scores, queries, keys, keys, dim, 1, across, nil)
	mixProduct(want, pqueries, pkeys, nil, dim, 1, across, nil)
	x.same("scores "+what, scores, want)

	var sums, wantSums MixSums
	for q := range sums.Top {
		sums.Top[q], sums.Weight[q] = oddFloat(x.rng, special), x.rng.Float32()
		if x.rng.IntN(3) == 0 { // nothing was seen before
			sums.Top[q], sums.Weight[q] = float32(math.Inf(-1)), 0
		}
	}
	wantSums = sums
	guarded := x.guard[3][trialSize-count*MixQueries:]
	copy(guarded, scores)
	want = want[:count*MixQueries]
	x.v.Mix.Weights(guarded, &sums)
	mixWeights(want, &wantSums)
	x.same("weights "+what, guarded, want)
	x.same("tops "+what, sums.Top[:], wantSums.Top[:])
	x.same("sums "+what, sums.Weight[:], wantSums.Weight[:])
	x.same("scale "+what, sums.Scale[:], wantSums.Scale[:])

	down := columns + x.rng.IntN(3)
	values, pvalues := x.fill(4, (count-1)*down+columns, special)
	out, wantOut := x.fill(5, columns*MixQueries, special)
	x.v.Mix.Product(out, guarded, values, values, count, down, 1, &sums.Scale)
	mixProduct(wantOut, want, pvalues, values, count, down, 1, &wantSums.Scale)
	x.same("values "+what, out, wantOut)
	x.v.Mix.Divide(out, &sums.Weight)
	mixDivide(wantOut, &wantSums.Weight)
	x.same("quotients "+what, out, wantOut)
}

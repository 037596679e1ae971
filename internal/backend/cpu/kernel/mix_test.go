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
	tiles, columns := (count+MixTile-1)/MixTile, (dim+MixTile-1)/MixTile
	queries, pqueries := x.fill(0, dim*MixQueries, special)
	keys, pkeys := x.fill(1, tiles*dim*MixTile, special)
	scores, want := x.guard[2][trialSize-tiles*MixTile*MixQueries:], make([]float32, tiles*MixTile*MixQueries)
	x.v.Mix.Product(scores, queries, keys, dim, dim*MixTile, nil)
	mixProduct(want, pqueries, pkeys, dim, dim*MixTile, nil)
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

	// The last tile ends where memory does; the others are step numbers apart.
	step := (count + x.rng.IntN(3)) * MixTile
	values, pvalues := x.fill(4, (columns-1)*step+count*MixTile, special)
	out, wantOut := x.fill(5, columns*MixTile*MixQueries, special)
	x.v.Mix.Product(out, guarded, values, count, step, &sums.Scale)
	mixProduct(wantOut, want, pvalues, count, step, &wantSums.Scale)
	x.same("values "+what, out, wantOut)
	x.v.Mix.Divide(out, &sums.Weight)
	mixDivide(wantOut, &wantSums.Weight)
	x.same("quotients "+what, out, wantOut)
}

package sampling

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestPenaltiesKnowTokensOnly puts ids outside of the vocabulary into prompts. The penalties do not change,
// with any window.
func TestPenaltiesKnowTokensOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 14))
	for range 200 {
		var tokens, mixed []int32
		for range rng.IntN(30) {
			id := rng.Int32N(9)
			mixed = append(mixed, slices.Repeat([]int32{-1}, rng.IntN(4))...)
			tokens, mixed = append(tokens, id), append(mixed, id)
		}
		mixed = append(mixed, slices.Repeat([]int32{-1}, rng.IntN(4))...)
		window := rng.IntN(12)
		a, b := newText(window, tokens), newText(window, mixed)
		for _, id := range []int32{3, 8, 3} {
			a.push(id)
			b.push(id)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("window of %d, %v: %+v, want %+v", window, mixed, b, a)
		}
	}
}

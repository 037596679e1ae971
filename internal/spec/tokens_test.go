package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

// TestColumnsAreTokens compares draws from rows that have columns for a part of the tokens with draws from whole rows, which have
// minus infinity for the other tokens.
func TestColumnsAreTokens(t *testing.T) {
	const vocab = 5000
	rng := rand.New(rand.NewPCG(8, 9))
	var tokens []int32
	for id := range int32(vocab) {
		if rng.IntN(3) == 0 {
			tokens = append(tokens, id)
		}
	}
	b := backendtest.Open(t, backend.Options{})
	x, err := b.Alloc(dtype.F32, 1, len(tokens))
	if err != nil {
		t.Fatal(err)
	}
	l := Logits{Tokens: tokens, Vocab: vocab, Certain: true}
	for i, o := range []sample.Options{
		{},
		{Temperature: 1},
		{Temperature: 0.8, TopK: 20},
		{Temperature: 0.8, TopP: 0.9},
		{Temperature: 0.7, MinP: 0.05},
		{Temperature: 1, LogitBias: map[int32]float32{tokens[3]: 20, tokens[3] + 1: 30}},
		{PresencePenalty: 1},
		{Temperature: 1, TopK: 5, Vocab: 2500},
		{Vocab: 2500},
	} {
		for round := range 10 {
			row, whole := make([]float32, len(tokens)), slices.Repeat([]float32{float32(math.Inf(-1))}, vocab)
			for c, id := range tokens {
				row[c] = float32(rng.NormFloat64() * 3)
				whole[id] = row[c]
			}
			if err := b.Write(x, row); err != nil {
				t.Fatal(err)
			}
			o.Seed = uint64(10*i + round)
			one, err := sampling.New(o, nil)
			if err != nil {
				t.Fatal(err)
			}
			other, _ := sampling.New(o, nil) // as the one before
			ahead := []int32{tokens[round], tokens[2*round]}
			var got int32
			l.Begin(b, x)
			l.Ask(one, ahead, 1)
			if err := l.Resolve(func(_ int, rows []sampling.Row) (ok bool) {
				got, ok = one.DrawOf(rows[0], ahead)
				return ok
			}); err != nil {
				t.Fatal(err)
			}
			if want := other.Draw(other.Dist(whole, ahead)); got != want {
				t.Errorf("%+v: drew %d, want %d", o, got, want)
			}
		}
	}
}

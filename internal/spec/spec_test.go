package spec

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

// TestVerifyEqualsPlainDecoding walks random drafts over random logits and compares with
// drawing one token at a time.
func TestVerifyEqualsPlainDecoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const vocab = 12
	for round := range 2000 {
		o := sample.Options{
			Temperature: []float64{0, 0.2, 0.8, 1.5}[round%4], TopK: rng.IntN(vocab), Seed: rng.Uint64(),
			RepetitionPenalty: 1 + rng.Float64(), PresencePenalty: rng.Float64(),
		}
		depth := rng.IntN(6)
		logits := make([][]float32, depth+1)
		for i := range logits {
			logits[i] = make([]float32, vocab)
			for j := range logits[i] {
				logits[i][j] = float32(rng.NormFloat64() * 3)
			}
		}
		plain, err := sampling.New(o, []int32{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		var want []int32
		for i := range logits {
			id := plain.Draw(plain.Dist(logits[i], nil))
			plain.Accept(id)
			want = append(want, id)
		}
		right := rng.IntN(depth + 1) // drafts that are accepted
		draft := slices.Clone(want[:depth])
		for i := right; i < depth; i++ {
			draft[i] = (want[i] + 1 + int32(rng.IntN(vocab-1))) % vocab
		}
		s, err := sampling.New(o, []int32{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		accepted, next, _ := Exact.Verify(s, Draft{Tokens: draft}, whole(logits...))
		if accepted != right || next != want[right] {
			t.Fatalf("draft %v of %v: %d accepted, then %d; want %d, then %d", draft, want, accepted, next, right, want[right])
		}
	}
}

func TestVerifyWithoutNumbersReportsIt(t *testing.T) {
	s, err := sampling.New(sample.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(0)
	nan /= nan
	if accepted, next, _ := Exact.Verify(s, Draft{}, whole([]float32{nan, nan})); accepted != 0 || next != -1 {
		t.Fatalf("%d accepted, then %d", accepted, next)
	}
}

// whole are rows of which every logit is known.
func whole(logits ...[]float32) []sampling.Row {
	rows := make([]sampling.Row, len(logits))
	for i := range rows {
		rows[i].All = logits[i]
	}
	return rows
}

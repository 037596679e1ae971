package sample

import (
	"math/rand/v2"
	"testing"
)

// TestPlainDrawsAreTheSamplers compares draws without a sampler with those of one.
func TestPlainDrawsAreTheSamplers(t *testing.T) {
	var w Drawer
	plain := 0
	for i := range 600 {
		r := rand.New(rand.NewPCG(51, uint64(i)))
		vocab := 1 + r.IntN(400)
		o := randomOptions(r, vocab)
		if r.IntN(2) == 0 {
			o = Options{Temperature: o.Temperature, Seed: o.Seed, Vocab: o.Vocab}
		}
		s := newSampler(t, o)
		for range r.IntN(4) {
			s.Accept(1)
		}
		ahead := make([]int32, r.IntN(4))
		row := oddRow(r, vocab)
		p, ok := s.Plain(len(ahead))
		if !ok {
			continue
		}
		plain++
		if got, want := w.Draw(p, row), s.Draw(s.Dist(row, ahead)); got != want {
			t.Fatalf("case %d: drew %d, the sampler %d, of %+v", i, got, want, o)
		}
	}
	if plain < 200 {
		t.Errorf("%d plain draws", plain)
	}
	for _, o := range []Options{
		{Temperature: 1, TopK: 3},
		{Temperature: 1, TopP: 0.5},
		{Temperature: 1, MinP: 0.1},
		{RepetitionPenalty: 2},
		{LogitBias: map[int32]float32{1: 1}},
		{PresencePenalty: 1},
		{Temperature: 1, XTCProbability: 1, XTCThreshold: 0.1},
		{Constraint: func() Constraint { return fixed(nil) }},
	} {
		if _, ok := newSampler(t, o).Plain(0); ok {
			t.Errorf("%+v: plain", o)
		}
	}
}

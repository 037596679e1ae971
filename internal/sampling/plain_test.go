package sampling

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

// TestPlainDrawsAreTheSamplers compares draws without a sampler with those of one, and their
// probabilities. Without filters the draws are the same.
func TestPlainDrawsAreTheSamplers(t *testing.T) {
	var w Drawer
	plain := 0
	for i := range 600 {
		r := rand.New(rand.NewPCG(51, uint64(i)))
		vocab := 1 + r.IntN(400)
		o := randomOptions(r, vocab)
		if r.IntN(2) == 0 {
			o = sample.Options{Temperature: o.Temperature, Seed: o.Seed, Vocab: o.Vocab}
		}
		s := newSampler(t, o)
		for range r.IntN(4) {
			s.Accept(1)
		}
		ahead := make([]int32, r.IntN(4))
		row := oddRow(r, vocab)
		p, ok := s.Plain(len(ahead))
		if !ok || p.TopK > 0 || p.TopP > 0 && p.TopP < 1 || p.Levels > 0 {
			continue
		}
		plain++
		d := s.Dist(row, ahead)
		got := w.Draw(p, row)
		if want := s.Draw(d); got.ID != want || want >= 0 && !got.Exact {
			t.Fatalf("case %d: drew %+v, the sampler %d, of %+v", i, got, want, o)
		}
		want := 0.0
		if got.ID >= 0 {
			want = float64(s.Certainty(d, Row{All: row}, got.ID))
		}
		if math.Abs(float64(got.Prob)-want) > 1e-4*want {
			t.Fatalf("case %d: probability %v, want %v, of %+v", i, got.Prob, want, o)
		}
	}
	if plain < 200 {
		t.Errorf("%d plain draws", plain)
	}
	for _, o := range []sample.Options{
		{RepetitionPenalty: 2},
		{LogitBias: map[int32]float32{1: 1}},
		{PresencePenalty: 1},
		{Temperature: 1, XTCProbability: 1, XTCThreshold: 0.1},
		{Constraint: func() sample.Constraint { return fixed(nil) }},
	} {
		if _, ok := newSampler(t, o).Plain(0); ok {
			t.Errorf("%+v: plain", o)
		}
	}
}

// TestPlainFiltersAreNearlyTheSamplers counts draws with coarse filters that differ from draws with exact
// ones, and compares the probabilities of the rest. Draws that are marked exact do not differ.
func TestPlainFiltersAreNearlyTheSamplers(t *testing.T) {
	var w Drawer
	const draws = 600
	for name, c := range map[string]struct {
		o     sample.Options
		exact int // minimum number of exact draws
	}{
		"top-k":            {sample.Options{Temperature: 1, TopK: 20}, 0},
		"top-p":            {sample.Options{Temperature: 0.8, TopP: 0.9}, draws * 9 / 10},
		"most of top-p":    {sample.Options{Temperature: 1, TopP: 0.99}, draws * 9 / 10},
		"min-p":            {sample.Options{Temperature: 1.2, MinP: 0.05}, draws * 9 / 10},
		"top-k and top-p":  {sample.Options{Temperature: 0.7, TopK: 20, TopP: 0.95}, 0},
		"top-p and min-p":  {sample.Options{Temperature: 1, TopP: 0.95, MinP: 0.02}, draws * 9 / 10},
		"all":              {sample.Options{Temperature: 1, TopK: 50, TopP: 0.95, MinP: 0.02}, 0},
		"one":              {sample.Options{Temperature: 1, TopK: 1}, 0},
		"few":              {sample.Options{Temperature: 1, TopP: 1e-9}, 0},
		"filters of greed": {sample.Options{TopK: 3, TopP: 0.1, MinP: 0.5}, draws},
	} {
		others, exact, off := 0, 0, 0.0
		for i := range draws {
			c.o.Seed = uint64(i)
			s := newSampler(t, c.o)
			r := rand.New(rand.NewPCG(52, uint64(i)))
			row := make([]float32, 3000)
			for i := range row {
				row[i] = float32((1 + 2*float64(i%2)) * r.NormFloat64())
			}
			p, ok := s.Plain(0)
			if !ok {
				t.Fatalf("%s: not plain", name)
			}
			d := s.Dist(row, nil)
			got := w.Draw(p, row)
			if got.Exact {
				exact++
			}
			if got.ID == s.Draw(d) {
				off += math.Abs(float64(got.Prob - s.Certainty(d, Row{All: row}, got.ID)))
				continue
			}
			if others++; got.Exact {
				t.Errorf("%s, draw %d: %d is not exact", name, i, got.ID)
			}
		}
		if others > draws/40 || exact < c.exact || off > draws/20 {
			t.Errorf("%s: %d draws of %d are others, %d exact, and probabilities are off by %.3f", name, others, draws, exact, off/draws)
		}
	}
}

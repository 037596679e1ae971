package sampling

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

// logitsOf gives logits whose softmax is p.
func logitsOf(p ...float64) []float32 {
	z := make([]float32, len(p))
	for i, x := range p {
		z[i] = float32(math.Log(x))
	}
	return z
}

// TestMinusOfSpec is the acceptance example of the model specification, 9.4.
func TestMinusOfSpec(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1})
	p, q := s.Dist(logitsOf(.5, .3, .2), nil), s.Dist(logitsOf(.2, .5, .3), nil)
	for id, want := range []float64{1, .6, 2. / 3} {
		if got := min(1, float64(p.Prob(int32(id))/q.Prob(int32(id)))); math.Abs(got-want) > 1e-6 {
			t.Errorf("id %d is accepted with probability %v, want %v", id, got, want)
		}
	}
	r := p.Minus(q)
	for id, want := range []float32{1, 0, 0} {
		if got := r.Prob(int32(id)); got != want {
			t.Errorf("residual of id %d is %v, want %v", id, got, want)
		}
	}
	if got := s.Draw(r); got != 0 {
		t.Errorf("drew %d from the residual", got)
	}
}

// TestMinusIsNormalizedDifference checks every id of random pairs.
func TestMinusIsNormalizedDifference(t *testing.T) {
	for i := range 400 {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		vocab := 1 + r.IntN(60)
		o := randomOptions(r, vocab)
		s := newSampler(t, o)
		p, q := s.Dist(oddRow(r, vocab), nil), s.Dist(oddRow(r, vocab), nil)
		want, total := make([]float64, vocab), 0.0
		for id := range want {
			want[id] = max(0, p.at.prob(int32(id))-q.at.prob(int32(id)))
			total += want[id]
		}
		d := p.Minus(q)
		for id := range want {
			x := p.at.prob(int32(id))
			if total > 0 {
				x = want[id] / total
			}
			if got := d.at.prob(int32(id)); math.Abs(got-x) > 1e-12 {
				t.Fatalf("case %d: id %d has %v, want %v", i, id, got, x)
			}
		}
		if id := s.Draw(d); id >= 0 && d.Prob(id) == 0 {
			t.Fatalf("case %d: drew %d, which has probability 0", i, id)
		}
		if same := p.Minus(p); same.at != p.at {
			t.Fatalf("case %d: d minus d is not d", i)
		}
	}
}

// TestRatioRuleKeepsLaw plays the rule of Leviathan et al. with the parts it will
// be made of, for whole, truncated and greedy drafts: the output follows p.
func TestRatioRuleKeepsLaw(t *testing.T) {
	pz, qz := []float32{1, 0.5, 0, -0.5, 2, 1.2}, []float32{0, 1, 0.3, -2, 1.5, 2}
	const n = 40_000
	for name, o := range map[string]sample.Options{
		"whole":     {Temperature: 1, Seed: 1},
		"truncated": {Temperature: 0.9, TopK: 4, Seed: 2},
		"xtc":       {Temperature: 1, XTCProbability: 0.5, XTCThreshold: 0.2, Seed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSampler(t, o)
			counts, expected := make([]int, len(pz)), make([]float64, len(pz))
			for range n {
				q := s.Dist(qz, nil)
				x := s.Draw(q)
				p := s.Dist(pz, nil)
				for id := range expected {
					expected[id] += float64(p.Prob(int32(id)))
				}
				if !s.Coin(p, p.Prob(x)/q.Prob(x)) {
					x = s.Draw(p.Minus(q))
				}
				counts[x]++
				s.Accept(x)
			}
			checkChiSquare(t, counts, expected)
		})
	}
}

// TestResidualFollowsItsProbabilities draws from one difference at many positions.
func TestResidualFollowsItsProbabilities(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1, Seed: 12})
	pz, qz := []float32{2, 1, 0, 3, 1}, []float32{0, 1.4, 3, 2.5, -1}
	const n = 30_000
	counts, expected := make([]int, len(pz)), make([]float64, len(pz))
	for range n {
		d := s.Dist(pz, nil).Minus(s.Dist(qz, nil))
		for id := range expected {
			expected[id] += d.at.prob(int32(id))
		}
		counts[s.Draw(d)]++
		s.Accept(0)
	}
	checkChiSquare(t, counts, expected)
}

func TestProbSumsToOne(t *testing.T) {
	for _, o := range []sample.Options{{Temperature: 0.8}, {Temperature: 0.8, TopP: 0.9}, {Temperature: 3, MinP: 0.001}} {
		s := newSampler(t, o)
		d := s.Dist(noiseRow(5000, 10), nil)
		sum := 0.0
		for id := range int32(5000) {
			sum += d.at.prob(id)
		}
		if math.Abs(sum-1) > 1e-7 {
			t.Errorf("%+v: probabilities add up to %v", o, sum)
		}
	}
}

// TestDetachOutlivesLogits overwrites the row a whole Dist was made from.
func TestDetachOutlivesLogits(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1, Seed: 3})
	row := noiseRow(500, 3)
	want := s.Dist(append([]float32(nil), row...), nil)
	d := s.Dist(row, nil).Detach()
	clear(row)
	if s.Draw(d) != s.Draw(want) || d.Prob(9) != want.Prob(9) {
		t.Error("a detached Dist changed with the logits")
	}
}

// TestPenalizedRowsAreTheirOwn holds two whole Dists of penalized rows at once.
func TestPenalizedRowsAreTheirOwn(t *testing.T) {
	o := sample.Options{Temperature: 1, PresencePenalty: 2, Seed: 3}
	s, alone := newSampler(t, o), newSampler(t, o)
	s.Accept(4)
	alone.Accept(4)
	a, b := noiseRow(300, 3), noiseRow(300, 0)
	da, db := s.Dist(a, nil), s.Dist(b, []int32{7})
	wantA := alone.Dist(a, nil).Prob(4)
	wantB := alone.Dist(b, []int32{7}).Prob(4)
	if da.Prob(4) != wantA || db.Prob(4) != wantB {
		t.Errorf("used together %v %v, one by one %v %v", da.Prob(4), db.Prob(4), wantA, wantB)
	}
}

func TestDistUsedTooLatePanics(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1})
	row := []float32{1, 2}
	mustPanic := func(name string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	d := s.Dist(row, nil)
	for range maxLive - 1 {
		s.Dist(row, nil)
	}
	d.Prob(0)
	s.Dist(row, nil)
	mustPanic("64 newer", func() { d.Prob(0) })
	s.Accept(0)
	d = s.Dist(row, nil)
	s.Accept(1)
	mustPanic("accepted", func() { s.Draw(d) })
	s.Dist(row, nil)
	mustPanic("accepted, and another in its place", func() { s.Draw(d) })
	mustPanic("zero", func() { (Dist{}).Prob(0) })
}

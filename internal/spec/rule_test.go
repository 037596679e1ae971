package spec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

// chain is a text in which a token's logits depend on the token before it, and a drafter
// that has its own idea of them.
type chain struct {
	target, draft [][]float32 // [token before][id]
	point         bool        // the drafter names its favorite and draws nothing
	lie           bool        // it draws from something else than it says
}

const small = 6 // ids

// newChain returns a chain whose drafter is so far from the target.
func newChain(seed uint64, distance float64) *chain {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &chain{}
	for range small {
		t, d := make([]float32, small), make([]float32, small)
		for i := range t {
			t[i] = float32(1.2 * rng.NormFloat64())
			d[i] = t[i] + float32(distance*rng.NormFloat64())
		}
		c.target, c.draft = append(c.target, t), append(c.draft, d)
	}
	return c
}

// propose drafts depth tokens after last.
func (c *chain) propose(s *sampling.Sampler, d *Draft, last int32, depth int) {
	d.Tokens, d.Dists = d.Tokens[:0], d.Dists[:0]
	for range depth {
		row := c.draft[last]
		q := s.Dist(row, d.Tokens)
		last = s.Draw(q)
		if c.point {
			last = int32(slices.Index(row, slices.Max(row)))
		} else {
			d.Dists = append(d.Dists, q)
		}
		if c.lie {
			last = (last + 1) % small
		}
		d.Tokens = append(d.Tokens, last)
	}
}

// speak continues a text by n tokens, appended to text, in rounds of drafts. It returns how
// many drafts were accepted.
func (c *chain) speak(r Rule, s *sampling.Sampler, d *Draft, rows []sampling.Row, text []int32, n int) ([]int32, int) {
	accepted := 0
	for end := len(text) + n; len(text) < end; {
		c.propose(s, d, text[len(text)-1], end-len(text))
		rows = append(rows[:0], sampling.Row{All: c.target[text[len(text)-1]]})
		for _, id := range d.Tokens {
			rows = append(rows, sampling.Row{All: c.target[id]})
		}
		kept, next, _ := r.Verify(s, *d, rows)
		accepted += kept
		for _, id := range append(d.Tokens[:kept:kept], next) {
			if len(text) < end {
				s.Accept(id)
				text = append(text, id)
			}
		}
	}
	return text, accepted
}

// law is the probability of each pair of tokens after a prompt.
func (c *chain) law(t *testing.T, o sample.Options, prompt []int32) (pairs [small * small]float64) {
	t.Helper()
	// What the coin of XTC decides is a mixture of always and never.
	always, never := o, o
	if o.XTCProbability > 0 {
		always.XTCProbability, never.XTCProbability = 1, 0
	}
	part := func(o sample.Options, row []float32, ahead ...int32) (p [small]float64) {
		s, err := sampling.New(o, prompt)
		if err != nil {
			t.Fatal(err)
		}
		d := s.Dist(row, ahead)
		for id := range p {
			p[id] = float64(d.Prob(int32(id)))
		}
		return p
	}
	mixed := func(row []float32, ahead ...int32) (p [small]float64) {
		a, n := part(always, row, ahead...), part(never, row, ahead...)
		for id := range p {
			p[id] = o.XTCProbability*a[id] + (1-o.XTCProbability)*n[id]
		}
		return p
	}
	first := mixed(c.target[prompt[len(prompt)-1]])
	for a := range first {
		for b, p := range mixed(c.target[a], int32(a)) {
			pairs[a*small+b] = first[a] * p
		}
	}
	return pairs
}

// distance is the chi-square of counts under a law, in standard deviations from its mean.
func distance(counts, law []float64) float64 {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	x, cells := 0.0, -1.0
	for i, p := range law {
		e := p * total
		if e < 1e-9 {
			if counts[i] > 0 {
				return math.Inf(1)
			}
			continue
		}
		x += (counts[i] - e) * (counts[i] - e) / e
		cells++
	}
	return (x - cells) / math.Sqrt(2*max(cells, 1))
}

// samplings are every filter alone, and together.
func samplings() map[string]sample.Options {
	return map[string]sample.Options{
		"temperature 1":   {Temperature: 1},
		"temperature 0.4": {Temperature: 0.4},
		"top-k":           {Temperature: 1, TopK: 3},
		"top-p":           {Temperature: 1, TopP: 0.8},
		"min-p":           {Temperature: 1, MinP: 0.2},
		"xtc":             {Temperature: 1, XTCProbability: 0.5, XTCThreshold: 0.15},
		"penalties":       {Temperature: 1, RepetitionPenalty: 1.5, PresencePenalty: 0.7, FrequencyPenalty: 0.4},
		"all": {
			Temperature: 0.9, TopK: 5, TopP: 0.95, MinP: 0.02, XTCProbability: 0.3, XTCThreshold: 0.2,
			RepetitionPenalty: 1.2, PresencePenalty: 0.3,
		},
	}
}

// draws speaks pairs of tokens after one prompt, each with its own noise, and counts them.
func (c *chain) draws(t *testing.T, o sample.Options, prompt []int32, pairs int) (counts [small * small]float64, accepted int) {
	t.Helper()
	var d Draft
	rows := make([]sampling.Row, 0, 4)
	text := slices.Clone(prompt)
	remembers := o.RepetitionPenalty != 0 || o.PresencePenalty != 0 || o.FrequencyPenalty != 0
	var s *sampling.Sampler
	for i := range pairs {
		if s == nil || remembers { // otherwise the next positions will do
			var err error
			o.Seed = uint64(i)
			if s, err = sampling.New(o, prompt); err != nil {
				t.Fatal(err)
			}
		}
		var kept int
		text, kept = c.speak(Ratio, s, &d, rows, text[:len(prompt)], 2)
		accepted += kept
		counts[text[len(prompt)]*small+text[len(prompt)+1]]++
	}
	return counts, accepted
}

// TestRatioKeepsLaw compares 80,000 tokens for each filter, 800,000 in its long version, two by two, with the target's
// law: with a drafter near to it, one far from it, one that is equal (nothing is left when
// it is refused, which it never is) and one that is certain.
func TestRatioKeepsLaw(t *testing.T) {
	pairs := 10_000
	switch {
	case testing.Short():
		pairs = 5_000
	case long:
		pairs = 100_000
	}
	prompt := []int32{1, 4, 1}
	for name, o := range samplings() {
		near, far, equal, point := newChain(1, 0.4), newChain(2, 3), newChain(3, 0), newChain(4, 1)
		point.point = true
		for kind, c := range map[string]*chain{"near": near, "far": far, "equal": equal, "point": point} {
			t.Run(fmt.Sprintf("%s/%s", name, kind), func(t *testing.T) {
				t.Parallel()
				law := c.law(t, o, prompt)
				counts, accepted := c.draws(t, o, prompt, pairs)
				x := distance(counts[:], law[:])
				t.Logf("chi-square %.2f standard deviations from its mean, %.3f drafts accepted per pair", x, float64(accepted)/float64(pairs))
				if x > 5 {
					t.Errorf("chi-square is %.1f standard deviations above its mean", x)
				}
				if kind == "equal" && accepted != 2*pairs {
					t.Errorf("%d of %d drafts accepted, though drafter and target are equal", accepted, 2*pairs)
				}
				if accepted == 0 || kind != "equal" && accepted >= 2*pairs {
					t.Errorf("%d of %d drafts accepted: nothing was put to the test", accepted, 2*pairs)
				}
			})
		}
	}
}

// TestRatioLawCanFail shows that the test above would see a drafter that draws from
// something else than it says.
func TestRatioLawCanFail(t *testing.T) {
	c := newChain(1, 0.4)
	c.lie = true
	o, prompt := sample.Options{Temperature: 1}, []int32{1, 4, 1}
	law := c.law(t, o, prompt)
	counts, _ := c.draws(t, o, prompt, 20_000)
	if x := distance(counts[:], law[:]); x < 50 {
		t.Errorf("chi-square is only %.1f standard deviations off for a wrong law", x)
	}
}

// TestRatioIsReproducible speaks twice.
func TestRatioIsReproducible(t *testing.T) {
	for name, o := range samplings() {
		c := newChain(5, 1)
		var texts [2][]int32
		for i := range texts {
			o.Seed = 7
			s, err := sampling.New(o, []int32{1})
			if err != nil {
				t.Fatal(err)
			}
			texts[i], _ = c.speak(Ratio, s, new(Draft), nil, []int32{1}, 12)
		}
		if !slices.Equal(texts[0], texts[1]) {
			t.Errorf("%s: %v, then %v", name, texts[0], texts[1])
		}
	}
}

// TestExactEqualsPlain compares the exact rule with the text that is spoken without drafts, for
// each filter, with drafters of every kind.
func TestExactEqualsPlain(t *testing.T) {
	liar := newChain(4, 1)
	liar.lie = true
	certain := newChain(4, 1)
	certain.point = true
	drafters := []*chain{newChain(1, 0.4), newChain(2, 3), newChain(3, 0), certain, liar}
	for name, o := range samplings() {
		accepted := 0
		for i := range 1000 {
			c := drafters[i%len(drafters)]
			o.Seed = uint64(i)
			want := []int32{1, 2}
			plain, err := sampling.New(o, want)
			if err != nil {
				t.Fatal(err)
			}
			for len(want) < 8 {
				id := plain.Draw(plain.Dist(c.target[want[len(want)-1]], nil))
				plain.Accept(id)
				want = append(want, id)
			}
			s, err := sampling.New(o, want[:2])
			if err != nil {
				t.Fatal(err)
			}
			got, kept := c.speak(Exact, s, new(Draft), nil, []int32{1, 2}, 6)
			if !slices.Equal(got, want) {
				t.Fatalf("%s, seed %d: %v, want %v", name, i, got, want)
			}
			accepted += kept
		}
		if accepted < 1000 {
			t.Errorf("%s: only %d drafts accepted", name, accepted)
		}
	}
}

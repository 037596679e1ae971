package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

// TestSamplerEqualsReference runs random chains over random rows, with ties, -Inf
// and NaN, and follows a text. The kept ids, their probabilities and the drawn token equal those of the
// plain implementation.
func TestSamplerEqualsReference(t *testing.T) {
	cases := 4000
	if testing.Short() {
		cases = 800
	}
	for i := range cases {
		r := rand.New(rand.NewPCG(17, uint64(i)))
		vocab := 1 + r.IntN(200)
		if i%20 == 0 {
			vocab = 1 + r.IntN(2000)
		}
		o := randomOptions(r, vocab)
		prompt := make([]int32, r.IntN(20))
		for j := range prompt {
			prompt[j] = int32(r.IntN(vocab + 2)) // ids past the row, too
		}
		s := newSampler(t, o, prompt...)
		var said []int32
		for range 3 {
			row := oddRow(r, vocab)
			if r.IntN(30) == 0 {
				row[r.IntN(vocab)] = float32(math.Inf(1))
			}
			want := refDist(o, prompt, said, row)
			checkDraw(t, i, o, s, row, nil, want, refDraw(o, len(said), want))
			id := int32(r.IntN(vocab))
			s.Accept(id)
			said = append(said, id)
		}
	}
}

// checkDraw compares the distribution of a row and the token drawn from it, in case i with options o. The row stays as it is.
func checkDraw(t *testing.T, i int, o sample.Options, s *Sampler, row []float32, ahead []int32, want []refToken, drawn int32) {
	t.Helper()
	before := slices.Clone(row)
	d := s.Dist(row, ahead)
	if got := s.Draw(d); got != drawn {
		t.Fatalf("case %d: drew %d, want %d\noptions %+v", i, got, drawn, o)
	}
	checkDist(t, d, want, len(row))
	if !slices.EqualFunc(row, before, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		t.Fatalf("case %d: Dist modified the logits", i)
	}
}

// TestTopPIsReachedExactly has weights that add up to the share, at a temperature at which each
// unit of logit is an octave.
func TestTopPIsReachedExactly(t *testing.T) {
	row := []float32{-1, 0, -2, -1, -2}
	for p, want := range map[float64]int{0.25: 1, 0.4: 1, 0.41: 2, 0.6: 2, 0.61: 3, 0.8: 3, 0.81: 4, 0.9: 4, 0.91: 5} {
		for _, k := range []int{0, 5} {
			o := sample.Options{Temperature: 1 / math.Ln2, TopP: p, TopK: k}
			left := refDist(o, nil, nil, row)
			if len(left) != want {
				t.Fatalf("the reference keeps %d, want %d", len(left), want)
			}
			checkDist(t, newSampler(t, o).Dist(row, nil), left, len(row))
		}
	}
}

// TestSamplerEqualsReferenceAtFullSize does the same on rows as long as a model's.
func TestSamplerEqualsReferenceAtFullSize(t *testing.T) {
	if testing.Short() {
		t.Skip("long rows are left out of short runs")
	}
	for i, o := range []sample.Options{
		{Temperature: 0.8, TopK: 20, TopP: 0.95},
		{Temperature: 0.8, TopK: 5000},
		{Temperature: 0.8, TopP: 0.95},
		{Temperature: 1.5, TopP: 0.999},
		{Temperature: 1, MinP: 0.01},
		{Temperature: 1},
		{Temperature: 60, TopP: 0.5},
	} {
		o.Seed, o.Vocab = uint64(i), benchVocab-77
		row := benchRows[i%2].row
		s := newSampler(t, o)
		want := refDist(o, nil, nil, row)
		d := s.Dist(row, nil)
		if got := d.at.len(); got != len(want) && d.at.id != nil {
			t.Errorf("case %d: %d ids are left, want %d", i, got, len(want))
		}
		if got, want := s.Draw(d), refDraw(o, 0, want); got != want {
			t.Errorf("case %d: drew %d, want %d", i, got, want)
		}
	}
}

// TestDrawKeepsLaw compares many draws with the filtered softmax in float64.
func TestDrawKeepsLaw(t *testing.T) {
	logits := []float32{2, 1.5, 1.5, 0, -1, 0.5, 2.2, -3, 1, 0.2, -0.5, float32(math.Inf(-1))}
	penalized := sample.Options{
		Temperature: 0.9, RepetitionPenalty: 1.3, LogitBias: map[int32]float32{7: 4},
	}
	cases := map[string]sample.Options{
		"temperature 1":    {Temperature: 1},
		"temperature 0.5":  {Temperature: 0.5},
		"temperature 3":    {Temperature: 3},
		"top-k":            {Temperature: 1, TopK: 4},
		"top-p":            {Temperature: 1, TopP: 0.8},
		"min-p":            {Temperature: 1, MinP: 0.2},
		"xtc":              {Temperature: 1, XTCProbability: 1, XTCThreshold: 0.1, XTCExempt: []int32{2}},
		"top-k top-p":      {Temperature: 0.8, TopK: 6, TopP: 0.9},
		"top-p min-p":      {Temperature: 1.4, TopP: 0.95, MinP: 0.15},
		"all filters":      {Temperature: 1.2, TopK: 8, TopP: 0.95, MinP: 0.1, XTCProbability: 1, XTCThreshold: 0.15},
		"bias and penalty": penalized,
	}
	const n = 40_000
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			o.Seed = 99
			prompt := []int32{0, 3, 6}
			s := newSampler(t, o, prompt...)
			left := refDist(o, prompt, nil, logits)
			expected := make([]float64, len(logits))
			var total float64
			for _, x := range left {
				expected[x.id] = math.Exp(x.score)
				total += expected[x.id]
			}
			for i := range expected {
				expected[i] *= n / total
			}
			counts := make([]int, len(logits))
			for pos := range n {
				s.position = pos // Accept would feed the penalties
				s.release()
				counts[s.Draw(s.Dist(logits, nil))]++
			}
			checkChiSquare(t, counts, expected)
		})
	}
}

// TestXTCCoin checks how often XTC applies, and that it is the same coin for a
// position however it is reached.
func TestXTCCoin(t *testing.T) {
	o := sample.Options{Temperature: 1, XTCProbability: 0.3, XTCThreshold: 0.1, Seed: 4}
	s := newSampler(t, o)
	logits := []float32{3, 2.5, 1, 0}
	applied := 0
	const n = 4000
	for i := range n {
		removed := s.Dist(logits, nil).Prob(0) == 0
		if removed {
			applied++
		}
		if i < 100 {
			other := newSampler(t, o)
			if got := other.Dist(logits, make([]int32, i)).Prob(0) == 0; got != removed {
				t.Fatalf("position %d: XTC applied is %v, with all tokens ahead %v", i, removed, got)
			}
		}
		s.Accept(0)
	}
	checkChiSquare(t, []int{applied, n - applied}, []float64{0.3 * n, 0.7 * n})
	u := unit(noise(stream(o.Seed, useXTC, 0), 0))
	for p, want := range map[float64]bool{0: false, u: false, math.Nextafter(u, 1): true} {
		o.XTCProbability = p
		if got := newSampler(t, o).Dist(logits, nil).Prob(0) == 0; got != want {
			t.Errorf("XTC with probability %v applied is %v where the noise is %v", p, got, u)
		}
	}
}

// TestDistAheadEqualsAccepted: a verifier may ask for distributions at positions after the current one.
func TestDistAheadEqualsAccepted(t *testing.T) {
	for i := range 600 {
		r := rand.New(rand.NewPCG(23, uint64(i)))
		vocab := 2 + r.IntN(40)
		o := randomOptions(r, vocab)
		prompt := []int32{0, int32(r.IntN(vocab)), 1}
		text := make([]int32, 12)
		for j := range text {
			text[j] = int32(r.IntN(vocab))
		}
		row := oddRow(r, vocab)
		behind, level := newSampler(t, o, prompt...), newSampler(t, o, prompt...)
		for n := range len(text) + 1 {
			for split := r.IntN(n + 1); behind.position < split; {
				behind.Accept(text[behind.position])
			}
			a, b := behind.Dist(row, text[behind.position:n]), level.Dist(row, nil)
			if x, y := behind.Draw(a), level.Draw(b); x != y {
				t.Fatalf("case %d: %d tokens, %d of them accepted, draw %d; all accepted %d", i, n, behind.position, x, y)
			}
			for id := range int32(vocab) {
				if x, y := a.Prob(id), b.Prob(id); x != y {
					t.Fatalf("case %d: Prob(%d) is %v with tokens ahead, %v with all accepted", i, id, x, y)
				}
			}
			if n < len(text) {
				level.Accept(text[n])
			}
		}
	}
}

// TestDrawIsPure asks in any order, and again, and beside other Dists.
func TestDrawIsPure(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 1))
	for _, o := range []sample.Options{{Temperature: 1, Seed: 1}, {Temperature: 1, TopK: 9, Seed: 1}, {Temperature: 1, TopP: 0.9, PresencePenalty: 1, Seed: 1}} {
		s, alone := newSampler(t, o), newSampler(t, o)
		rows, dists, want := make([][]float32, 30), make([]Dist, 30), make([]int32, 30)
		ahead := make([]int32, 30)
		for i := range rows {
			rows[i] = oddRow(r, 300)
			dists[i] = s.Dist(rows[i], ahead[:i])
			want[i] = alone.Draw(alone.Dist(rows[i], ahead[:i]))
		}
		for _, i := range r.Perm(90) {
			if got := s.Draw(dists[i%30]); got != want[i%30] {
				t.Fatalf("Dist %d draws %d, alone %d", i%30, got, want[i%30])
			}
		}
	}
}

// TestDrawsAreCoupled compares target and draft drawn with shared noise, as they
// are, to the same with independent noise.
func TestDrawsAreCoupled(t *testing.T) {
	const n = 4000
	target, other := newSampler(t, sample.Options{Temperature: 1, Seed: 1}), newSampler(t, sample.Options{Temperature: 1, Seed: 2})
	r := rand.New(rand.NewPCG(5, 5))
	shared, independent, bound := 0, 0, 0.0
	p, q := make([]float32, 50), make([]float32, 50)
	for range n {
		for i := range p {
			p[i] = float32(2 * r.NormFloat64())
			q[i] = p[i] + float32(0.5*r.NormFloat64())
		}
		dp, dq := target.Dist(p, nil), target.Dist(q, nil)
		x := target.Draw(dp)
		if x == target.Draw(dq) {
			shared++
		}
		if x == other.Draw(other.Dist(q, nil)) {
			independent++
		}
		// Both draws are i with probability 1/Σ_j max(p_j/p_i, q_j/q_i), which is at
		// least min(p_i, q_i)/Σ_j max(p_j, q_j). Summed over i that is the bound below,
		// with the total variation distance.
		distance := 0.0
		for id := range int32(50) {
			distance += math.Abs(float64(dp.Prob(id)-dq.Prob(id))) / 2
		}
		bound += (1 - distance) / (1 + distance)
		target.Accept(x)
		other.Accept(x)
	}
	t.Logf("agreement: coupled %.3f, independent %.3f, bound %.3f", float64(shared)/n, float64(independent)/n, bound/n)
	if float64(shared) < bound-4*math.Sqrt(n)/2 {
		t.Errorf("coupled draws agree %d times of %d, want at least about %.0f", shared, n, bound)
	}
	if shared < 2*independent {
		t.Errorf("coupled draws agree %d times, independent ones %d", shared, independent)
	}
}

func TestGreedyTakesLowestOfTies(t *testing.T) {
	nan := float32(math.NaN())
	low := float32(math.Inf(-1))
	for _, c := range []struct {
		logits []float32
		vocab  int
		want   int32
	}{
		{[]float32{1, 3, 3, 2}, 0, 1},
		{[]float32{nan, -5, -5}, 0, 1},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0, 0},
		{[]float32{low, low, -math.MaxFloat32}, 0, 2},
		{[]float32{1, 2, 9}, 2, 1},
		{[]float32{1, float32(math.Inf(1)), math.MaxFloat32}, 0, 1},
		{[]float32{nan, low}, 0, -1},
		{nil, 0, -1},
	} {
		for _, temperature := range []float64{0, 5e-324, 1e-30} {
			s := newSampler(t, sample.Options{Temperature: temperature, TopK: 1, Vocab: c.vocab})
			d := s.Dist(c.logits, nil)
			got := s.Draw(d)
			if got != c.want {
				t.Errorf("temperature %v, logits %v: %d, want %d", temperature, c.logits, got, c.want)
			}
			if got >= 0 && d.Prob(got) != 1 {
				t.Errorf("temperature %v, logits %v: Prob(%d) = %v", temperature, c.logits, got, d.Prob(got))
			}
			listed, ok := s.DistOf(part(c.logits, Need{Vocab: s.vocab(len(c.logits))}, 2), nil)
			if !ok || s.Draw(listed) != c.want {
				t.Errorf("temperature %v, logits %v, listed: enough is %t, want %d", temperature, c.logits, ok, c.want)
			}
		}
	}
}

// TestPositionsAreIndependent draws from one distribution at neighboring positions.
func TestPositionsAreIndependent(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1, Seed: 8})
	logits := []float32{0, 0, 0, 0, 0, 0, 0, 0}
	const n = 30_000
	counts, expected := make([]int, 64), make([]float64, 64)
	last := s.Draw(s.Dist(logits, nil))
	for range n {
		s.Accept(last)
		next := s.Draw(s.Dist(logits, nil))
		counts[8*last+next]++
		last = next
	}
	for i := range expected {
		expected[i] = n / 64.0
	}
	checkChiSquare(t, counts, expected)
}

func TestCoinFollowsP(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1, Seed: 8})
	const n = 20_000
	heads := 0
	for range n {
		d := s.Dist([]float32{0, 0}, nil)
		if s.Coin(d, 0.3) {
			heads++
		}
		if !s.Coin(d, 1) || s.Coin(d, 0) || s.Coin(d, float32(math.NaN())) || !s.Coin(d, float32(math.Inf(1))) {
			t.Fatal("a certain coin fell on the wrong side")
		}
		s.Accept(0)
	}
	checkChiSquare(t, []int{heads, n - heads}, []float64{0.3 * n, 0.7 * n})
}

func TestSamplerDoesNotAllocate(t *testing.T) {
	row, flat := noiseRow(20_000, 20), noiseRow(20_000, 0)
	for name, o := range map[string]sample.Options{
		"greedy":      {},
		"topk+topp":   {Temperature: 0.8, TopK: 20, TopP: 0.95},
		"topp":        {Temperature: 0.8, TopP: 0.95},
		"minp":        {Temperature: 0.8, MinP: 0.05},
		"temperature": {Temperature: 0.8},
		"xtc":         {Temperature: 0.8, XTCProbability: 1, XTCThreshold: 0.1},
		"penalties":   {Temperature: 0.8, TopK: 20, RepetitionPenalty: 1.1, PresencePenalty: 1, LogitBias: map[int32]float32{3: 1}},
		"windowed":    {Temperature: 0.8, RepetitionPenalty: 1.1, RepetitionWindow: 64},
	} {
		s := newSampler(t, o, 1, 2, 3)
		drafts := []int32{5, 6, 7, 8}
		round := func() {
			for i := range drafts {
				p, q := s.Dist(row, drafts[:i]), s.Dist(flat, drafts[:i])
				s.Draw(p)
				s.Draw(p.Minus(q))
				s.Coin(p, p.Prob(3))
			}
			for _, id := range drafts {
				s.Accept(id)
			}
		}
		round()
		if s.text != nil {
			s.text.history = slices.Grow(s.text.history, 1000)
		}
		if got := testing.AllocsPerRun(20, round); got != 0 {
			t.Errorf("%s: %v allocations per round, want 0", name, got)
		}
	}
}

func FuzzDist(f *testing.F) {
	f.Add(uint64(1), []byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 192, 127, 0, 0, 128, 255})
	f.Add(uint64(2), []byte{0, 0, 128, 127, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 128})
	f.Fuzz(func(t *testing.T, choice uint64, data []byte) {
		row := make([]float32, len(data)/4)
		for i := range row {
			row[i] = math.Float32frombits(uint32(data[4*i]) | uint32(data[4*i+1])<<8 | uint32(data[4*i+2])<<16 | uint32(data[4*i+3])<<24)
		}
		o := randomOptions(rand.New(rand.NewPCG(choice, 1)), len(row)+1)
		prompt := []int32{0, -1, math.MaxInt32}
		s := newSampler(t, o, prompt...)
		want := refDist(o, prompt, nil, row)
		d := s.Dist(row, nil)
		if got, want := s.Draw(d), refDraw(o, 0, want); got != want {
			t.Fatalf("drew %d, want %d\noptions %+v\nrow %v", got, want, o, row)
		}
		checkDist(t, d, want, len(row))
		LogProbs(row, 1, 5)
	})
}

func ExampleSampler() {
	s, err := New(sample.Options{Temperature: 1, TopK: 2, Seed: 3}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	logits := []float32{1, 4, 3.5, 0}
	for range 5 {
		d := s.Dist(logits, nil)
		id := s.Draw(d)
		fmt.Printf("%d %.3f\n", id, d.Prob(id))
		s.Accept(id)
	}
	// Output:
	// 1 0.622
	// 1 0.622
	// 1 0.622
	// 2 0.378
	// 1 0.622
}

package sampling

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/sample"
)

// A refToken is an id with its adjusted logit, its score and its integer weight.
type refToken struct {
	id     int32
	z      float32
	score  float64
	weight uint64
}

// refDist is the chain written down step by step on a sorted list: the oracle of
// Sampler.Dist. It shares the elementary functions (tested on their own) and the
// definition of a weight, but none of the selection. The result is likeliest first.
func refDist(o sample.Options, prompt, said []int32, logits []float32) []refToken {
	n := len(logits)
	if o.Vocab > 0 {
		n = min(n, o.Vocab)
	}
	left := make([]refToken, 0, n)
	for i, z := range refAdjust(o, prompt, said, logits[:n]) {
		if z > float32(math.Inf(-1)) { // false for NaN
			left = append(left, refToken{id: int32(i), z: min(z, math.MaxFloat32)})
		}
	}
	slices.SortStableFunc(left, func(a, b refToken) int { return cmp.Compare(b.z, a.z) })
	if len(left) == 0 {
		return nil
	}
	if o.Temperature == 0 {
		return left[:1]
	}
	sc := newScale(left[0].z, o.Temperature)
	for i := range left {
		left[i].score = sc.score(left[i].z)
		left[i].weight = weight(sc.level(left[i].z))
	}
	left = left[:count(left, func(t refToken) bool { return sc.level(t.z) < floorLevel })]
	if o.TopK > 0 {
		left = left[:min(o.TopK, len(left))]
	}
	if o.TopP > 0 && o.TopP < 1 {
		goal, sum := uint64(o.TopP*float64(refTotal(left))), uint64(0)
		for i, t := range left {
			if sum += t.weight; sum >= goal {
				left = left[:i+1]
				break
			}
		}
	}
	if o.MinP > 0 {
		last := uint64(min(-exactmath.Log(o.MinP)*log2e*octave, floorLevel-1))
		left = left[:count(left, func(t refToken) bool { return sc.level(t.z) <= last })]
	}
	if pos := len(said); o.XTCProbability > 0 && unit(noise(stream(o.Seed, useXTC, pos), 0)) < o.XTCProbability {
		total := float64(refTotal(left))
		least := 0
		for i, t := range left {
			if float64(t.weight) >= o.XTCThreshold*total {
				least = i
			}
		}
		kept := make([]refToken, 0, len(left))
		for i, t := range left {
			if i >= least || slices.Contains(o.XTCExempt, t.id) {
				kept = append(kept, t)
			}
		}
		left = kept
	}
	return left
}

func refAdjust(o sample.Options, prompt, said []int32, logits []float32) []float32 {
	window := slices.Concat(prompt, said)
	if o.RepetitionWindow > 0 {
		window = window[max(0, len(window)-o.RepetitionWindow):]
	}
	row := slices.Clone(logits)
	for i := range row {
		id := int32(i)
		row[i] += o.LogitBias[id]
		z := float64(row[i])
		if p := o.RepetitionPenalty; p != 0 && slices.Contains(window, id) {
			if z > 0 {
				z /= p
			} else {
				z *= p
			}
		}
		times := 0.0
		for _, s := range said {
			if s == id {
				times++
			}
		}
		if times > 0 {
			z -= float64(o.FrequencyPenalty * times)
			z -= o.PresencePenalty
		}
		row[i] = float32(z)
	}
	return row
}

// count is the number of leading tokens that satisfy keep.
func count(tokens []refToken, keep func(refToken) bool) int {
	for i, t := range tokens {
		if !keep(t) {
			return i
		}
	}
	return len(tokens)
}

func refTotal(tokens []refToken) (sum uint64) {
	for _, t := range tokens {
		sum += t.weight
	}
	return sum
}

// refDraw works out the noise of every token.
func refDraw(o sample.Options, pos int, left []refToken) int32 {
	if len(left) == 0 {
		return -1
	}
	if len(left) == 1 {
		return left[0].id
	}
	key := stream(o.Seed, useToken, pos)
	best, bestSum := int32(-1), math.Inf(-1)
	for _, t := range left {
		sum := t.score + gumbel(noise(key, t.id))
		if sum > bestSum || sum == bestSum && t.id < best {
			best, bestSum = t.id, sum
		}
	}
	return best
}

// randomOptions draws a chain; every option is off about half of the time.
func randomOptions(r *rand.Rand, vocab int) sample.Options {
	maybe := func(x float64) float64 { return x * float64(r.IntN(2)) }
	ids := func(n int) []int32 {
		list := make([]int32, r.IntN(n+1))
		for i := range list {
			list[i] = int32(r.IntN(vocab))
		}
		return list
	}
	o := sample.Options{
		Temperature: []float64{0, 1e-3, 0.3, 0.8, 1, 1.7, 40}[r.IntN(7)],
		TopK:        int(maybe(float64(1 + r.IntN(2*vocab)))),
		TopP:        maybe([]float64{1e-9, 0.1, 0.5, 0.9, 0.95, 0.9999, 1}[r.IntN(7)]),
		MinP:        maybe([]float64{1e-6, 0.01, 0.1, 0.5, 1}[r.IntN(5)]),

		XTCProbability: maybe([]float64{0.5, 1}[r.IntN(2)]),
		XTCThreshold:   []float64{1e-5, 0.01, 0.1, 0.3}[r.IntN(4)],
		XTCExempt:      ids(3),

		RepetitionPenalty: maybe([]float64{0.8, 1, 1.1, 2}[r.IntN(4)]),
		RepetitionWindow:  int(maybe(float64(1 + r.IntN(12)))),
		PresencePenalty:   maybe([]float64{-0.5, 0.5, 1.5}[r.IntN(3)]),
		FrequencyPenalty:  maybe([]float64{-0.2, 0.3, 1}[r.IntN(3)]),
		Seed:              r.Uint64(),
	}
	if r.IntN(3) == 0 {
		o.TopK = 1 + r.IntN(min(vocab, 30))
	}
	if r.IntN(3) == 0 {
		o.LogitBias = make(map[int32]float32)
		for _, id := range ids(5) {
			o.LogitBias[id] = float32(5 * r.NormFloat64())
		}
	}
	if r.IntN(3) == 0 {
		o.Vocab = 1 + r.IntN(vocab)
		o.LogitBias, o.XTCExempt = nil, nil
	}
	return o
}

func newSampler(t testing.TB, o sample.Options, prompt ...int32) *Sampler {
	t.Helper()
	s, err := New(o, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkDist fails unless d holds exactly the tokens of want with their shares.
func checkDist(t *testing.T, d Dist, want []refToken, vocab int) {
	t.Helper()
	total := float64(refTotal(want))
	expected := make(map[int32]float64, len(want))
	for _, w := range want {
		expected[w.id] = 1
		if len(want) > 1 {
			expected[w.id] = float64(w.weight) / total
		}
	}
	for id := int32(-1); id <= int32(vocab); id++ {
		e, in := expected[id]
		// One unit of weight is 2^-42 of the likeliest, or more if XTC took that.
		got := float64(d.Prob(id))
		if math.Abs(got-e) > 1e-7*e+4/max(total, 1) {
			t.Fatalf("Prob(%d) = %v, want %v", id, got, e)
		}
		if in != (got > 0) {
			t.Fatalf("Prob(%d) = %v, but kept is %v", id, got, in)
		}
	}
}

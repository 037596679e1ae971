package measure

import (
	"slices"

	"github.com/foretoken/foretoken/internal/spec"
)

// chooseVocab limits the draft vocabulary, where the drafter offers sizes, to the one that
// should give the most tokens per second. A smaller vocabulary makes drafts cheaper, in
// proportion to its size, and misses tokens that are neither frequent nor in the text so far.
// row is the row of the last pass that the drafter sees next.
func (t *selfTest) chooseVocab(row int) error {
	d, ok := t.drafter.(spec.VocabLimiter)
	if !ok || len(d.VocabSizes()) < 2 {
		return nil
	}
	sizes := d.VocabSizes()
	smallest, largest := sizes[0], sizes[len(sizes)-1]
	cheap, err := t.draftSeconds(smallest, row)
	if err != nil {
		return err
	}
	dear, err := t.draftSeconds(largest, row)
	if err != nil {
		return err
	}
	perToken := max(dear-cheap, 0) / float64(largest-smallest)
	best, rate := largest, 0.0
	for _, n := range slices.Backward(sizes) {
		acceptance := t.result.Rate(0) * coverage(t.text, n)
		if r := bestRate(acceptance, t.chunk.Seconds(), cheap+perToken*float64(n-smallest)); r > rate {
			best, rate = n, r
		}
	}
	t.result.DraftVocab = best
	d.LimitVocab(best)
	return nil
}

// draftSeconds is the median time of one draft token from a vocabulary of size frequent tokens.
func (t *selfTest) draftSeconds(size, row int) (float64, error) {
	var times [5]float64
	for i := range times {
		took, err := t.TimeDraft(t.text[:testLead+1], row, 1, size)
		if err != nil {
			return 0, err
		}
		times[i] = took.Seconds()
	}
	return Median(times[:]), nil
}

// coverage is the share of a text's tokens that a draft vocabulary of size frequent tokens, and
// those of the text before, has.
func coverage(text []int32, size int) float64 {
	n := 0
	for i, id := range text {
		if int(id) < size || slices.Contains(text[:i], id) {
			n++
		}
	}
	return float64(n) / float64(len(text))
}

// bestRate is the tokens per second at the best depth up to testDepth, if every draft token is
// accepted with probability p after accepted ones, and a pass and a draft token take pass and
// draft seconds.
func bestRate(p, pass, draft float64) float64 {
	best, tokens, all := 0.0, 1.0, 1.0
	for depth := range testDepth + 1 {
		best = max(best, Speedup(tokens, pass, float64(depth)*draft))
		all *= p
		tokens += all
	}
	return best
}

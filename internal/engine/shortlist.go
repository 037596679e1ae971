package engine

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// shorten tries the sizes that a Shortlister has to offer and leaves it at the one that
// promises the most tokens per second. A shorter list makes guesses cheaper, in proportion
// to its length, and misses tokens that are neither frequent nor in the text so far. out is
// the result of the last pass, the given row of which is the next to be learned.
func (t *trial) shorten(out model.Output, row int) error {
	d, ok := t.drafter.(spec.VocabLimiter)
	if !ok || len(d.VocabSizes()) < 2 {
		return nil
	}
	sizes := d.VocabSizes()
	least, most := sizes[0], sizes[len(sizes)-1]
	d.LimitVocab(least)
	small, err := t.timeGuess(out, row)
	if err != nil {
		return err
	}
	d.LimitVocab(most)
	large, err := t.timeGuess(out, row)
	if err != nil {
		return err
	}
	perToken := max(large-small, 0).Seconds() / float64(most-least)
	best, rate := most, 0.0
	for _, n := range slices.Backward(sizes) {
		if r := t.promise(t.covered(n), small.Seconds()+perToken*float64(n-least)); r > rate {
			best, rate = n, r
		}
	}
	t.verdict.DraftVocab = best
	d.LimitVocab(best)
	return nil
}

// timeGuess is the median time of a few guesses. What they leave in the drafter's memory is
// taken back.
func (t *trial) timeGuess(out model.Output, row int) (time.Duration, error) {
	var times [5]time.Duration
	pos := t.draftState.Len()
	for i := range times {
		start := time.Now()
		if err := t.learn(out, row, pos, 1); err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
		t.draftState.Truncate(pos)
	}
	return median(times[:]), nil
}

// covered is the share of the text's tokens that would have been on a list of that size.
func (t *trial) covered(size int) float64 {
	n := 0
	for i, id := range t.text {
		if int(id) < size || slices.Contains(t.text[:i], id) {
			n++
		}
	}
	return float64(n) / float64(len(t.text))
}

// promise is the tokens per second at the best depth, if a guess takes so many seconds and
// all but such a share of those that were right so far are on the list.
func (t *trial) promise(share, guess float64) float64 {
	p := t.verdict.Rate(0) * share
	best, tokens, all := 0.0, 1.0, 1.0
	for depth := range TestDepth + 1 {
		best = max(best, tokens/(t.chunk.Seconds()+float64(depth)*guess))
		all *= p
		tokens += all
	}
	return best
}

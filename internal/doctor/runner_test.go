package doctor

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestContinueAllKeepsHiddenRows checks the rows of two texts, before and after the norm: one of
// each for every token but the last, all of them numbers.
func TestContinueAllKeepsHiddenRows(t *testing.T) {
	_, m, b := load(t, openEdited(t, editTiny(t, asIs, nil)))
	r := newRunner(t.Context(), m, b, m.Info().Vocab)
	texts, err := r.continueAll([][]int32{{628, 627, 258}, {300}}, 3, 3, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range texts {
		for name, rows := range map[string][]float32{"before": x.Before, "after": x.After} {
			if len(rows) != (len(x.IDs)-1)*m.Info().Width || slices.ContainsFunc(rows, func(v float32) bool { return math.IsNaN(float64(v)) }) {
				t.Errorf("text %d of %d tokens has %d numbers %s the norm, %v …", i, len(x.IDs), len(rows), name, rows[:4])
			}
		}
		if slices.Equal(x.Before, x.After) {
			t.Errorf("text %d: the norm has changed nothing", i)
		}
	}
}

// TestPerplexityIsFinite has a model whose logits are a hundred thousand times too large: it is
// certain of its tokens, and wrong.
func TestPerplexityIsFinite(t *testing.T) {
	loud := func(name string, data []byte) bool {
		if name == "model.norm.weight" {
			addTo(data, 1e5)
		}
		return true
	}
	_, m, b := load(t, openEdited(t, editTiny(t, loud, nil)))
	p, err := newRunner(t.Context(), m, b, m.Info().Vocab).perplexity([]int32{628, 627, 258, 300})
	if err != nil || p != maxPerplexity {
		t.Errorf("perplexity %v, %v", p, err)
	}
}

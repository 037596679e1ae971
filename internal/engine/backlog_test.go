package engine

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// pausing drafts with a head in every other stretch of a text, and in between has nothing to
// draft from. It counts the rows that it is fed, those at another position than their own, and the calls.
type pausing struct {
	spec.Drafter
	stretch                int
	rows, misplaced, calls int
}

func (d *pausing) Plan(batch []spec.Run) {
	for i := range batch {
		batch[i].Sources = 0
		if len(batch[i].Text)/d.stretch%2 == 1 {
			batch[i].Sources = spec.Sources(0).With(spec.Computed)
		}
	}
}

func (d *pausing) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for _, r := range batch {
		if n := r.Hidden.Rows; n > 0 {
			d.rows, d.calls = d.rows+n, d.calls+1
			if r.State.Next() != len(r.Text)-n-1 {
				d.misplaced++
			}
		}
	}
	return d.Drafter.Draft(batch)
}

// TestHeadIsFedEverything has stretches without drafts that are longer than the backlog. The head is then fed in a few calls,
// every row where it belongs, and the text is that of plain decoding.
func TestHeadIsFedEverything(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "tiny"), model.Options{})
	const tokens, stretch = 240, 80
	for _, rule := range []spec.Rule{spec.Exact, spec.Ratio} {
		d := &pausing{Drafter: m.Drafter(), stretch: stretch}
		e, err := New(m, pool, Options{Drafter: d, Cache: rule == spec.Exact})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		r := Request{
			Prompt: golden.Load(t, "tiny").Cases[0].Prompt, MaxTokens: tokens, IgnoreEnd: true, Hash: true,
			Sampling: sample.Options{Temperature: 0.7, Seed: 5}, Rule: rule, Depth: spec.FixedDepth(2),
		}
		ids, res, err := collect(e, r)
		if err != nil {
			t.Fatal(err)
		}
		fed := len(r.Prompt) + tokens
		if d.misplaced > 0 || d.rows > fed || d.rows < fed-spec.Backlog-3 || d.calls > fed*3/4 {
			t.Errorf("%v: %d of %d rows fed in %d calls, %d of them misplaced", rule, d.rows, fed, d.calls, d.misplaced)
		}
		if res.Speculation.Accepted == 0 {
			t.Error("no draft token was accepted")
		}
		if rule == spec.Ratio {
			continue
		}
		r.Depth = spec.DepthOff
		want, plain, err := collect(e, r)
		if err != nil || !slices.Equal(ids, want) || res.LogitsHash != plain.LogitsHash {
			t.Errorf("the text is not that of plain decoding, %v", err)
		}
	}
}

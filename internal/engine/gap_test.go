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
// draft from. It counts the rows that it is fed, and those at another position than their own.
type pausing struct {
	spec.Drafter
	stretch         int
	rows, misplaced int
	gaps            int // calls that go on behind rows that were never fed
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
		n := r.Hidden.Rows
		d.rows += n
		at := len(r.Text) - n - 1 // of the first row
		if n > 0 && r.State.Next() != at {
			d.gaps++
		}
		for i := range n {
			if p := r.State.Next() + i; r.Positions == nil && p != at+i || r.Positions != nil && r.Positions[i] != flat(at+i) {
				d.misplaced++
			}
		}
	}
	return d.Drafter.Draft(batch)
}

// TestHeadMayForget has long stretches without drafts. Without a cache the head is then not fed
// all of the answer, but what it is fed is where it belongs; with one, or under the ratio rule, it
// is fed everything. The text is that of plain decoding.
func TestHeadMayForget(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "tiny"), model.Options{})
	const tokens, stretch = 240, 80
	for _, c := range []struct {
		name    string
		cache   bool
		rule    spec.Rule
		forgets bool
	}{
		{"no cache", false, spec.Exact, true},
		{"cache", true, spec.Exact, false},
		{"ratio", false, spec.Ratio, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &pausing{Drafter: m.Drafter(), stretch: stretch}
			e, err := New(m, pool, Options{Drafter: d, Cache: c.cache})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			r := Request{
				Prompt: golden.Load(t, "tiny").Cases[0].Prompt, MaxTokens: tokens, IgnoreEnd: true, Hash: true,
				Sampling: sample.Options{Temperature: 0.7, Seed: 5}, Rule: c.rule, Depth: spec.FixedDepth(2),
			}
			ids, res, err := collect(e, r)
			if err != nil {
				t.Fatal(err)
			}
			fed := len(r.Prompt) + tokens
			if d.misplaced > 0 || d.rows > fed || (d.rows < fed-2*spec.Backlog) != c.forgets || (d.gaps > 0) != c.forgets {
				t.Errorf("%d of %d rows fed, %d of them misplaced, %d gaps", d.rows, fed, d.misplaced, d.gaps)
			}
			t.Logf("%d of %d rows fed, %d gaps, %d of %d draft tokens accepted", d.rows, fed, d.gaps, res.Speculation.Accepted, res.Speculation.Drafted)
			if res.Speculation.Accepted == 0 {
				t.Error("no draft token was accepted")
			}
			if c.rule == spec.Ratio {
				return
			}
			r.Depth = spec.DepthOff
			want, plain, err := collect(e, r)
			if err != nil || !slices.Equal(ids, want) || res.LogitsHash != plain.LogitsHash {
				t.Errorf("the text is not that of plain decoding, %v", err)
			}
		})
	}
}

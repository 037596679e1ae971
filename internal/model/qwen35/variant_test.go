package qwen35

import (
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
)

// TestVariantDiffersInWhatItSays runs variants of a head over the same pairs.
func TestVariantDiffersInWhatItSays(t *testing.T) {
	r := open(t, golden.Dir(t, "dense"), 1, model.Options{})
	prompt := golden.Load(t, "dense").Cases[0].Prompt
	_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: prompt})
	before, after := r.Model.(model.Examinable).HiddenRows()
	if before.Rows != len(prompt) || !slices.Equal(r.Host(t, after), hidden) || slices.Equal(r.Host(t, before), hidden) {
		t.Error("the hidden rows are not those of the last pass")
	}
	next, hidden := prompt[1:], hidden[:(len(prompt)-1)*r.Info().Width]
	want := headLogits(t, r, hidden, next)
	head := r.Head().(*network.Head)
	run := func(h model.Head) [][]float32 {
		logits, _ := r.FeedTo(t, h, r.Pairs(t), hidden, next)
		return logits
	}
	all := map[string]float32{}
	for name := range norms(head) {
		all[name] = 1
	}
	for name, c := range map[string]struct {
		v    variant
		same bool
	}{
		"nothing":      {variant{}, true},
		"no shift":     {variant{shift: map[string]float32{"norm": 0}}, true},
		"all norms":    {variant{shift: all}, false},
		"one norm":     {variant{shift: map[string]float32{"layers.0.self_attn.k_norm": 1}}, false},
		"hidden first": {variant{hiddenFirst: true}, false},
	} {
		h, done, err := c.v.of(head)
		if err != nil {
			t.Fatal(err)
		}
		got := run(h)
		if same := slices.EqualFunc(got, want, slices.Equal); same != c.same {
			t.Errorf("%s: the same logits %v", name, same)
		}
		done()
		if again := run(head); !slices.EqualFunc(again, want, slices.Equal) {
			t.Errorf("%s: the head itself has changed", name)
		}
	}
	shifted, _, err := variant{shift: all}.of(head)
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		all[name] = -1
	}
	undone, _, err := variant{shift: all}.of(shifted)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range run(undone) {
		for j, x := range row {
			if math.Abs(float64(x-want[i][j])) > 1e-4 {
				t.Fatalf("row %d, logit %d: %v after a shift was undone, %v before", i, j, x, want[i][j])
			}
		}
	}
}

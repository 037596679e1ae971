package qwen35

import (
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/state"
)

// TestModelEqualsSpecification computes the specification's own vectors.
func TestModelEqualsSpecification(t *testing.T) {
	for _, c := range golden.SpecCases() {
		t.Run(c.Config.Name, func(t *testing.T) {
			r := open(t, c.Config.Checkpoint(t), 1, model.Options{Compute: backend.Float32, MaxDrafts: 3})
			t.Run("model", func(t *testing.T) { specModel(t, r, c.Want) })
			t.Run("head", func(t *testing.T) { specHead(t, r, c.Want) })
			for depth, cycles := range c.Want.Traces {
				t.Run(fmt.Sprintf("depth=%d", depth), func(t *testing.T) { specTrace(t, r, depth, cycles, c.Want.Greedy) })
			}
		})
	}
}

func specModel(t *testing.T, r *rig, want golden.SpecVectors) {
	var worst golden.Worst
	n, width := len(golden.SpecPrompt), r.Info().Width
	if want.Layers != nil {
		for layer, x := range r.Tapped(t, model.Span{State: r.Sequence(t), Tokens: golden.SpecPrompt}, r.Info().Layers) {
			if layer > 0 {
				worst.Add(fmt.Sprintf("layer %d", layer-1), x[len(x)-width:], want.Layers[layer-1])
			}
		}
	}
	s := r.Sequence(t)
	logits, hidden := r.Feed(t, model.Span{State: s, Tokens: golden.SpecPrompt, Want: 1})
	worst.Add("hidden", hidden[(n-1)*width:], want.Hidden)
	worst.Add("logits", logits[0], want.Logits)
	if want.Recurrent != nil {
		mem := s.Seq(0, 0, 0, nil).Delta[0]
		worst.Add("recurrent state", r.Host(t, mem.State), want.Recurrent)
		worst.Add("convolution state", r.Host(t, mem.Tail.RowRange(0, 3)), want.Conv)
	}
	worst.Check(t, "vectors", golden.Tol.Spec)
	var text []int32
	for range want.Greedy {
		text = append(text, argmax(logits[0]))
		logits, _ = r.Feed(t, model.Span{State: s, Tokens: text[len(text)-1:], Want: 1})
	}
	if !slices.Equal(text, want.Greedy) {
		t.Errorf("greedy %v, want %v", text, want.Greedy)
	}
}

// specHead checks the head with a cache filled by the prompt, and that the two classic
// mistakes give the numbers that betray them.
func specHead(t *testing.T, r *rig, want golden.SpecVectors) {
	var worst golden.Worst
	n, width := len(golden.SpecPrompt), r.Info().Width
	_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: golden.SpecPrompt})
	next := append(slices.Clone(golden.SpecPrompt[1:]), want.Greedy[0])
	s, err := r.Pool.Open(r.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	logits, out := r.FeedHead(t, s, hidden, next)
	worst.Add("head logits", logits[n-1], want.MTPLogits)
	if want.MTPHidden != nil {
		worst.Add("head hidden", out[(n-1)*width:], want.MTPHidden)
	}
	if want.MTPSecond != nil {
		second, _ := r.FeedHead(t, s, out[(n-1)*width:], []int32{argmax(logits[n-1])})
		worst.Add("second step", second[0], want.MTPSecond)
	}
	if want.MTPCold != nil {
		cold := headLogits(t, r, hidden[(n-1)*width:], next[n-1:])
		worst.Add("cold cache", cold[0], want.MTPCold)
	}
	worst.Check(t, "head", golden.Tol.Spec)
	if want.MTPPreNorm != nil {
		r.Model.(*network.Model).PreNorm = true
		_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: golden.SpecPrompt})
		r.Model.(*network.Model).PreNorm = false
		logits := headLogits(t, r, hidden, next)
		var pre golden.Worst
		pre.Add("head logits", logits[n-1], want.MTPPreNorm)
		pre.Check(t, "pre-norm hidden states", golden.Tol.Spec)
	}
}

// specTrace decodes with the head's draft tokens as the specification does: the head's cache is
// cut back to true pairs after every round.
func specTrace(t *testing.T, r *rig, depth int, cycles []golden.SpecCycle, greedy []int32) {
	target := r.Sequence(t)
	head, err := r.Pool.Open(r.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer head.Close()
	logits, hidden := r.Feed(t, model.Span{State: target, Tokens: golden.SpecPrompt, Want: 1})
	text := []int32{argmax(logits[0])}
	pending := append(slices.Clone(golden.SpecPrompt[1:]), text[0])
	for i, want := range cycles {
		draft := chain(t, r, head, hidden, pending, depth)
		if text[len(text)-1] != want.Token || !slices.Equal(draft, want.Drafts) {
			t.Fatalf("round %d: %v after %d, want %v after %d", i, draft, text[len(text)-1], want.Drafts, want.Token)
		}
		tokens := append(slices.Clone(text[len(text)-1:]), draft...)
		rows, h := r.Feed(t, model.Span{State: target, Tokens: tokens, Drafts: depth, Want: depth + 1})
		accepted := 0
		for accepted < depth && argmax(rows[accepted]) == draft[accepted] {
			accepted++
		}
		if accepted != want.Accepted {
			t.Fatalf("round %d: %d of %v accepted, want %d", i, accepted, draft, want.Accepted)
		}
		target.Commit(accepted)
		pending = append(slices.Clone(draft[:accepted]), argmax(rows[accepted]))
		text = append(text, pending...)
		hidden = h[:(accepted+1)*r.Info().Width]
	}
	chain(t, r, head, hidden, pending, 1) // the last round's pairs
	if head.Len() != golden.SpecFinalPairs || target.Len() != golden.SpecFinalPairs {
		t.Errorf("%d pairs and %d tokens stored, want %d", head.Len(), target.Len(), golden.SpecFinalPairs)
	}
	if n := min(len(text), len(greedy)); !slices.Equal(text[:n], greedy[:n]) {
		t.Errorf("text %v, want %v", text, greedy)
	}
}

// chain feeds true pairs and then drafts depth tokens, leaving only the true pairs.
func chain(t *testing.T, r *rig, head *state.State, hidden []float32, next []int32, depth int) []int32 {
	t.Helper()
	logits, out := r.FeedHead(t, head, hidden, next)
	draft := []int32{argmax(logits[len(logits)-1])}
	n, width := head.Len(), r.Info().Width
	for len(draft) < depth {
		logits, out = r.FeedHead(t, head, out[len(out)-width:], draft[len(draft)-1:])
		draft = append(draft, argmax(logits[0]))
	}
	head.Truncate(n)
	return draft
}

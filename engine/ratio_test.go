package engine

import (
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/sample"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/state"
)

// TestRatioIsReproducible holds texts under the ratio rule to their seed: they are not those
// of decoding without guesses, but no company, budget, cache or want of memory changes them.
func TestRatioIsReproducible(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantise: 8, DraftVocab: 64})
	var requests []Request
	for i := range 8 {
		requests = append(requests, Request{
			Prompt: prompt(20+40*i, i), MaxTokens: 20, IgnoreEnd: true, LogProbs: -1, Depth: []int{-1, 3, 6}[i%3], Rule: spec.Ratio,
			Sampling: sample.Options{Temperature: 1, Seed: uint64(i)},
		})
	}
	alone, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter()})
	if err != nil {
		t.Fatal(err)
	}
	var want [][]int32
	for _, r := range requests {
		ids, _, err := collect(alone, r)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, ids)
	}
	alone.Close()
	probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
	preempted := int64(0)
	for i, o := range []Options{{}, {RoundTokens: 10}, {Cache: true}, {RoundTokens: 24, MaxBatch: 3}, {Cache: true, RoundTokens: 64}} {
		budget := int64(1 << 30)
		if i >= 3 {
			budget = probe.bytes(340+spec.MaxDepth) * 2
		}
		o.Drafter = m.Drafter()
		e, err := New(m, state.NewPool(b, budget), o)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			var all sync.WaitGroup
			for j, r := range requests {
				all.Go(func() {
					if ids, _, err := collect(e, r); err != nil || !slices.Equal(ids, want[j]) {
						t.Errorf("options %d, request %d: %v, %v; want %v", i, j, ids, err, want[j])
					}
				})
			}
			all.Wait()
		}
		preempted += e.Stats().Preemptions
		e.Close()
	}
	if preempted == 0 {
		t.Error("nothing was preempted")
	}
}

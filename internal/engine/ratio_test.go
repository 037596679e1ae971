package engine

import (
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// TestRatioIsReproducible checks that the seed decides texts under the ratio rule: they are not those
// of decoding without drafts, but no batch, budget, cache or want of memory changes them.
func TestRatioIsReproducible(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	m.draftVocab = 64
	var requests []Request
	for i := range 8 {
		requests = append(requests, Request{
			Prompt: prompt(20+40*i, i), MaxTokens: 20, IgnoreEnd: true, Depth: []spec.Depth{spec.DepthAuto, 3, 6}[i%3], Rule: spec.Ratio,
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
	for i, o := range []Options{{}, {RoundTokens: 10}, {Cache: true}, {RoundTokens: 24, MaxBatch: 3}, {Cache: true, RoundTokens: 64}} {
		budget, tight := int64(1<<30), i >= 3
		if tight {
			budget = probe.bytes(340+spec.MaxDepth) * 5 / 4
		}
		o.Drafter = m.Drafter()
		gate := &gated{m, make(chan int32), make(chan struct{})}
		e, err := New(gate, state.NewPool(b, budget), o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time from the cache, if there is one
			together(t, e, gate, requests, func(j int, s *Stream) {
				ids, err := read(s)
				if err != nil || !slices.Equal(ids, want[j]) {
					t.Errorf("options %d, request %d: %v, %v; want %v", i, j, ids, err, want[j])
				}
			})
		}
		if n := e.Stats().Preemptions; tight != (n > 0) {
			t.Errorf("options %d: %d preemptions", i, n)
		}
		e.Close()
	}
}

// together has requests meet. The last begins, and the others come in its first round with a
// higher priority: where there is no memory for two, it is preempted.
func together(t *testing.T, e *Engine, gate *gated, requests []Request, check func(i int, s *Stream)) {
	t.Helper()
	var all sync.WaitGroup
	for i := len(requests) - 1; i >= 0; i-- {
		r := requests[i]
		if i < len(requests)-1 {
			r.Priority = 1
		}
		s, err := e.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { check(i, s) })
		if i == len(requests)-1 {
			<-gate.begun
		}
	}
	gate.let <- struct{}{}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	gate.passUntil(ended)
}

// TestPreemptionCutsNoDrafts preempts requests of the ratio rule. Where their texts, which are read again, leave a round no space for
// all drafts, these wait for the next round.
func TestPreemptionCutsNoDrafts(t *testing.T) {
	device := backendtest.CPU(t, backend.Options{Threads: 1})
	m := &interrupted{headed: load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, device)}
	for n := range 5 {
		r := Request{
			Prompt: prompt(9+n, 1), MaxTokens: 14, IgnoreEnd: true, Depth: 2, Rule: spec.Ratio, Sampling: sample.Options{Temperature: 0.9, Seed: 5},
		}
		var want []int32
		for i := range 2 {
			e, err := New(m, state.NewPool(device, 1<<30), Options{Drafter: m.Drafter(), RoundTokens: 5, MaxBatch: 1})
			if err != nil {
				t.Fatal(err)
			}
			m.passes, m.f = 6*i, func() {
				if _, err := e.Generate(t.Context(), Request{Prompt: prompt(4, 2), MaxTokens: 1, Priority: 1}); err != nil {
					t.Error(err)
				}
			}
			ids, result, err := collect(e, r)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = ids
			}
			if e.Close(); !slices.Equal(ids, want) || result.Preempted != i {
				t.Errorf("%d tokens: %v, want %v, preempted %d times", len(r.Prompt), ids, want, result.Preempted)
			}
		}
	}
}

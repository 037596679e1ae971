//go:build cuda

package engine

import (
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// TestGeneratedModelOnBothDevices decodes a hundred tokens with a model of the 2B shape, four requests
// at a time, without drafts and with some: GPU and processor have the same tokens and the same bits of logits.
func TestGeneratedModelOnBothDevices(t *testing.T) {
	const tokens = 100
	type answer struct {
		ids  []int32
		hash uint64
	}
	answers := func(dev backend.Backend, depth spec.Depth) []answer {
		m, pool := openGenerated(t, dev, "2b")
		e, err := New(m, pool, Options{Drafter: m.Drafter(), Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		list := make([]answer, 4)
		var all sync.WaitGroup
		for i := range list {
			all.Go(func() {
				ids, res, err := collect(e, Request{
					Prompt: []int32{int32(i), 20, 300, 4000}, MaxTokens: tokens, IgnoreEnd: true, Hash: true, Depth: depth,
					Sampling: sample.Options{Temperature: float64(i) / 4, Seed: 7},
				})
				if err != nil || len(ids) != tokens {
					t.Errorf("%d tokens: %v", len(ids), err)
				}
				list[i] = answer{ids, res.LogitsHash}
			})
		}
		all.Wait()
		return list
	}
	want := answers(backendtest.CPU(t, backend.Options{}), spec.DepthOff)
	for _, depth := range []spec.Depth{spec.DepthOff, spec.FixedDepth(3)} {
		for i, got := range answers(backendtest.Open(t, backend.Options{}), depth) {
			if !slices.Equal(got.ids, want[i].ids) || got.hash != want[i].hash {
				t.Errorf("request %d with depth %v: other tokens or logits than the processor's", i, depth)
			}
		}
	}
}

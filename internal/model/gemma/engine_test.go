package gemma

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/engine/enginetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// TestEngineChangesNothing has requests meet in an engine, with correct and wrong drafts, one of the models on two devices.
func TestEngineChangesNothing(t *testing.T) {
	for i, name := range golden.Gemma {
		o := model.Options{Compute: backend.Int8, Quantize: 8, MaxDrafts: spec.MaxDepth, KVBits: []int{0, 8, 16, 4}[i]}
		t.Run(fmt.Sprintf("%s/kv=%d", name, o.KVBits), func(t *testing.T) {
			b := backendtest.Open(t, backend.Options{})
			if name == "gemma4_ple" {
				b = halves(t)
			}
			r := openOn(t, b, golden.Dir(t, name), o)
			need := r.Layout().Bytes(200)
			enginetest.ChangesNothing(t, r, need, nil, func(script spec.Drafter) []enginetest.Run {
				return []enginetest.Run{
					{Cache: true, Budget: 1 << 26, Tokens: 512},
					{Drafter: script, Cache: true, Budget: 1 << 26, Tokens: 30},
					{Drafter: script, Budget: 3 * need, Tokens: 7},
					{Drafter: script, Cache: true, Budget: 4 * need, Tokens: 100},
				}
			})
		})
	}
}

// halves is two devices that have two layers each, alternating: rounds of several groups are in flight, and both compute at once.
func halves(t *testing.T) backend.Backend {
	t.Helper()
	b := func() backend.Backend { return backendtest.NewOpaque(backendtest.Open(t, backend.Options{})) }
	d, err := split.New(func(p backend.Part) int { return p.Layer / 2 % 2 }, b(), b())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

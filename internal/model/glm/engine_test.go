package glm

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine/enginetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
)

// TestEngineChangesNothing has requests meet in an engine, with drafts of the head or of a script.
func TestEngineChangesNothing(t *testing.T) {
	for i, name := range golden.GLM {
		o := model.Options{Compute: backend.Int8, Quantize: 8, MaxDrafts: spec.MaxDepth, KVBits: []int{0, 8, 16, 4}[i]}
		t.Run(fmt.Sprintf("%s/kv=%d", name, o.KVBits), func(t *testing.T) {
			r := open(t, golden.Dir(t, name), 0, o)
			memory := state.Need{Drafts: []state.DraftNeed{spec.Need(r.Head().Layout(), r.Info().Width)}}
			need := memory.DraftBytes(200) + r.Layout().Bytes(200)
			head := func() spec.Drafter { return mtp.New(r.Head(), mtp.Options{Vocab: r.Info().Vocab}) }
			enginetest.ChangesNothing(t, r, need, head(), func(script spec.Drafter) []enginetest.Run {
				return []enginetest.Run{
					{Cache: true, Budget: 1 << 26, Tokens: 512},
					{Drafter: head(), Budget: 3 * need, Tokens: 40},
					{Drafter: script, Cache: true, Budget: 1 << 26, Tokens: 30},
					{Drafter: script, Budget: 3 * need, Tokens: 7},
					{Drafter: head(), Cache: true, Budget: 4 * need, Tokens: 100},
				}
			})
		})
	}
}

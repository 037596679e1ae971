// Package qwen35 is the Qwen3.5 family: dense and mixture-of-experts models of Gated
// DeltaNet and gated attention layers, and their multi-token-prediction head. It knows
// every layout such checkpoints come in; the arithmetic is the backend's.
package qwen35

import (
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// Layout implements network.Config.
func (c *config) Layout(o model.Options, head bool) state.Layout {
	l, layers := state.Layout{MaxDrafts: o.MaxDrafts, Head: head}, c.layers
	if head {
		layers = []bool{true}
	}
	for _, attention := range layers {
		if attention {
			l.Layers = append(l.Layers, state.KV{Type: o.KVType(), Heads: c.kvHeads, Key: c.headDim, Value: c.headDim})
		} else {
			l.Layers = append(l.Layers, state.Delta{
				KeyHeads: c.keyHeads, ValueHeads: c.valueHeads, KeyDim: c.keyDim, ValueDim: c.valueDim, Kernel: c.kernel,
			})
		}
	}
	return l
}

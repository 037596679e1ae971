// Package glm is the family of GLM-4.5 to 4.7, GLM-4.7-Flash and DeepSeek-V3: mixtures of experts
// chosen by sigmoids with a bias, over grouped-query attention or over latent rows, and their
// multi-token-prediction head. It knows every layout such checkpoints come in; the arithmetic is
// the backend's.
package glm

import (
	"slices"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// Layout implements network.Config.
func (c *config) Layout(o model.Options, head bool) state.Layout {
	var kind state.Layer = state.Latent{Type: o.KVType(), Width: c.rank, Rotary: c.rotary}
	if c.rank == 0 {
		kind = state.KV{Type: o.KVType(), Heads: c.kvHeads, Key: c.headDim, Value: c.headDim}
	}
	n := len(c.dense)
	if head {
		n = 1
	}
	return state.Layout{Layers: slices.Repeat([]state.Layer{kind}, n), MaxDrafts: o.MaxDrafts, Head: head}
}

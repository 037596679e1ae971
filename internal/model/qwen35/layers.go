package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// layer is one decoder layer: a mixer of positions, then a feed-forward per position. Field
// names are the checkpoint's.
type layer struct {
	*rows
	at                  backend.Place
	inputNorm, postNorm backend.Tensor // [1, hidden]
	attn                *attention     // one of the two
	delta               *deltaNet
	mlp                 *mlp // one of the two
	moe                 *backend.Experts
}

// attention is a layer of gated attention.
type attention struct {
	backend.Attention
	q    backend.Weight // [2*heads*dim, hidden]: query and gate of each head
	k, v backend.Weight // [kvHeads*dim, hidden]
	o    backend.Weight // [hidden, heads*dim]
}

// deltaNet is a Gated DeltaNet layer.
type deltaNet struct {
	backend.DeltaNet
	qkv  backend.Weight // [channels, hidden]
	z    backend.Weight // [valueHeads*valueDim, hidden]
	b, a backend.Weight // [valueHeads, hidden]
	out  backend.Weight // [hidden, valueHeads*valueDim]
}

// mlp is a dense feed-forward.
type mlp struct {
	gate, up backend.Weight // [intermediate, hidden]
	down     backend.Weight // [hidden, intermediate]
}

// Layers implements network.Config.
func (c *config) Layers(n *network.Network, head bool) []network.Layer {
	w := newRows(c, n)
	if head {
		return []network.Layer{newLayer(w, true)}
	}
	list := make([]network.Layer, len(c.layers))
	for i, attention := range c.layers {
		list[i] = newLayer(w, attention)
	}
	return list
}

func newLayer(w *rows, isAttention bool) *layer {
	c, y := w.cfg, &layer{rows: w}
	if isAttention {
		y.attn = &attention{Attention: backend.Attention{
			Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.headDim, Gate: true, Eps: c.Eps, Freqs: c.freqs(), Sections: c.turns(),
		}}
	} else {
		y.delta = &deltaNet{DeltaNet: backend.DeltaNet{
			KeyHeads: c.keyHeads, ValueHeads: c.valueHeads, Tiled: c.tiled, KeyDim: c.keyDim, ValueDim: c.valueDim,
			Kernel: c.kernel, Eps: c.Eps, SigmoidGate: c.sigmoidGate,
		}}
	}
	if c.Experts > 0 {
		y.moe = &backend.Experts{TopK: c.TopK, Normalize: c.normTopK}
	} else {
		y.mlp = &mlp{}
	}
	return y
}

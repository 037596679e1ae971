package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
)

// layer is one decoder layer: a mixer of positions, then a feed-forward per position. Field
// names are the checkpoint's.
type layer struct {
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

func newLayer(c *config, isAttention bool) layer {
	var y layer
	if isAttention {
		y.attn = &attention{Attention: backend.Attention{
			Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.headDim, Gate: true, Eps: c.eps, Freqs: c.freqs(), Sections: c.turns(),
		}}
	} else {
		y.delta = &deltaNet{DeltaNet: backend.DeltaNet{
			KeyHeads: c.keyHeads, ValueHeads: c.valueHeads, Tiled: c.tiled, KeyDim: c.keyDim, ValueDim: c.valueDim,
			Kernel: c.kernel, Eps: c.eps, SigmoidGate: c.sigmoidGate,
		}}
	}
	if c.experts > 0 {
		y.moe = &backend.Experts{TopK: c.topK, Normalize: c.normTopK}
	} else {
		y.mlp = &mlp{}
	}
	return y
}

package glm

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// layer is one decoder layer: attention, then a feed-forward per position. Field names are the
// checkpoint's.
type layer struct {
	*rows
	at                  backend.Place
	inputNorm, postNorm backend.Tensor // [1, hidden]
	latent              *latent        // one of the two
	attn                *attention
	mlp                 *mlp // one of the two
	moe                 *backend.Experts
}

// latent is attention over latent rows in its absorbed form: instead of keys and values of all
// heads, a token leaves one row, and every head's query and answer go through the head's own
// matrices into and out of it. The form is the same for prompts and for single tokens, since
// another one would round otherwise.
type latent struct {
	backend.Attention
	query               backend.Weight // [heads*(nope+rotary), hidden] without a rank of its own, else
	queryDown           backend.Weight // [rank, hidden]
	queryNorm           backend.Tensor // [1, rank]
	queryUp             backend.Weight // [heads*(nope+rotary), rank]
	keyDown             backend.Weight // [Latent+rotary, hidden]
	embedQuery, unembed backend.Weight // stacks of heads, [Latent, nope] and [value, Latent]
	out                 backend.Weight // [hidden, heads*value]
}

// attention is grouped-query attention.
type attention struct {
	backend.Attention
	q, k, v             backend.Weight // [heads*dim, hidden], [kvHeads*dim, hidden]
	qBias, kBias, vBias backend.Tensor // none: no bias
	o                   backend.Weight // [hidden, heads*dim]
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
		return []network.Layer{newLayer(w, false)}
	}
	list := make([]network.Layer, len(c.dense))
	for i, dense := range c.dense {
		list[i] = newLayer(w, dense)
	}
	return list
}

func newLayer(w *rows, dense bool) *layer {
	c, y := w.cfg, &layer{rows: w}
	if c.rank > 0 {
		y.latent = &latent{Attention: backend.Attention{
			Heads: c.heads, KVHeads: 1, HeadDim: c.rank + c.rotary, Latent: c.rank, Eps: innerEps,
			Freqs: c.freqs(), Interleaved: c.interleaved, Turn: c.turn(), Scale: c.scoreScale(),
		}}
	} else {
		y.attn = &attention{Attention: backend.Attention{
			Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.headDim, Eps: c.Eps, Freqs: c.freqs(), Turn: c.turn(), Scale: c.scoreScale(),
		}}
	}
	if dense {
		y.mlp = &mlp{}
		return y
	}
	y.moe = &backend.Experts{
		TopK: c.TopK, Sigmoid: true, Groups: c.groups, TopGroups: c.topGroups, Normalize: c.normTopK, Scale: c.expertScale,
	}
	return y
}

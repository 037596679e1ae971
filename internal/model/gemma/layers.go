package gemma

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// layer is one decoder layer: attention, then a feed-forward, beside it a mixture of experts in some models, and in others a
// third part that mixes in an embedding of the layer's own. Each part has a norm before and one behind it. Field names are the
// checkpoint's.
type layer struct {
	*rows
	*kindRows
	number int
	at     backend.Place
	owner  *layer // the layer whose KV cache it reads, which may be itself

	backend.Attention
	inputNorm, postNorm    backend.Tensor // [1, hidden]
	query, key, value, out backend.Weight // [heads*dim, hidden], [kvHeads*dim, hidden] twice, [hidden, heads*dim]
	valueNorm              backend.Tensor // [1, dim]: ones

	inner             int
	preFeed, postFeed backend.Tensor // [1, hidden]
	gate, up, down    backend.Weight // [inner, hidden] twice, [hidden, inner]

	moe                                *backend.Experts // nil: there are none
	routerGain                         backend.Tensor   // [1, hidden], as the next
	postDense, preExperts, postExperts backend.Tensor

	inputGate, inputOut backend.Weight // [inputs, hidden], [hidden, inputs]
	postInput           backend.Tensor // [1, hidden]

	scalar float32 // of the residual stream behind the layer
}

// perLayer is the weights from which the first layer computes the inputs of all layers.
type perLayer struct {
	own         weights.Rows   // [vocab, layers*inputs]
	context     backend.Weight // [layers*inputs, hidden]
	contextNorm backend.Tensor // [1, inputs]
	numbers     []float32      // looked up for the running call
}

// Layers implements network.Config.
func (c *config) Layers(n *network.Network, head bool) []network.Layer {
	if head {
		return nil
	}
	w := newRows(c, n)
	layers, list := make([]*layer, len(c.kinds)), make([]network.Layer, len(c.kinds))
	for i, k := range c.kinds {
		y := &layer{rows: w, kindRows: &w.of[k], number: i, inner: c.inner}
		layers[i], list[i] = y, y
		y.owner = layers[c.owner(i)]
		if c.double && y.owner != y {
			y.inner *= 2
		}
		y.Attention = backend.Attention{
			Heads: c.heads, KVHeads: y.kvHeads, HeadDim: y.dim, Eps: c.Eps, Freqs: y.kindRows.Freqs(y.dim), Scale: 1,
		}
		if k == sliding {
			y.Window = c.window
		}
		if c.experts > 0 {
			y.moe = &backend.Experts{TopK: c.TopK, Normalize: true, Activation: backend.GELUTanh}
		}
	}
	return list
}

// first reports whether the layer computes the inputs of all layers.
func (y *layer) first() bool { return y.number == 0 && y.cfg.inputs > 0 }

// keyIsValue reports whether values are the keys before their norm.
func (y *layer) keyIsValue() bool { return y.cfg.keyIsV && y.cfg.kinds[y.number] == full }

package network

import (
	"iter"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Head is a multi-token-prediction head: one layer over pairs of a hidden state at t and the token at
// t+1, whose answer is a draft of the token at t+2.
type Head struct {
	Network
	Pairs Pairs

	model  *Model
	layout state.Layout
	layer  Layer
}

var (
	_ model.Chainer    = (*Head)(nil)
	_ model.Repairable = (*Head)(nil)
)

// newHead is a head of m without weights. It has the embedding and the output matrix of the model, unless
// files store others.
func newHead(m *Model) *Head {
	h := &Head{model: m}
	h.Settings, h.Queue = m.Settings, h.operations
	h.Embed, h.Unembed = m.Embed, m.Unembed
	if layers := m.Config.Layers(&h.Network, true); len(layers) == 1 {
		h.layer = layers[0]
	}
	return h
}

// Weights returns the weights of the head, nil if the family has no heads.
func (h *Head) Weights() iter.Seq[*weights.Weight] {
	if h.layer == nil {
		return nil
	}
	n := h.Width
	var list []weights.Weight
	if h.OwnTables {
		output, shared := weights.OutputMatrix, &h.model.Unembed
		if h.Tied {
			output, shared = "embed_tokens", &h.model.Embed
		}
		list = append(list, weights.NewCopy(&h.Embed, "mtp.embed_tokens", h.Vocab, n, "embed_tokens", &h.model.Embed),
			weights.NewCopy(&h.Unembed, "mtp.lm_head", h.Vocab, n, output, shared))
	}
	list = append(list, weights.NewMatrix(&h.Pairs.FC, "mtp.fc", n, 2*n))
	list = h.layer.Weights(list, "mtp.layers.0.")
	list = append(list,
		weights.NewGain(&h.Norm, "mtp.norm", n),
		weights.NewGain(&h.Pairs.NormEmbed, "mtp.pre_fc_norm_embedding", n),
		weights.NewGain(&h.Pairs.NormHidden, "mtp.pre_fc_norm_hidden", n))
	return func(yield func(*weights.Weight) bool) { weights.Each(list, yield) }
}

// Layout is the state of a sequence: one layer.
func (h *Head) Layout() state.Layout { return h.layout }

// Forward implements model.Head.
func (h *Head) Forward(batch []model.Span, only []int32) (model.Output, error) {
	return h.Pairs.Forward(&h.Network, batch, only)
}

// Chain implements model.Chainer.
func (h *Head) Chain(batch []model.Span, only []int32, draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	return h.Pairs.Chain(&h.Network, batch, only, draws)
}

// Repairs implements model.Repairable.
func (h *Head) Repairs() []model.Repair { return h.model.Config.Repairs(h) }

// Layer is the head's layer, of the type of its family.
func (h *Head) Layer() Layer { return h.layer }

// Variant is a head that shares the weights of h, which must outlive it, and that a repair may change. Its
// layer is a copy that layer makes for its network. Release gives back its memory.
func (h *Head) Variant(layer func(n *Network) Layer) *Head {
	x := &Head{model: h.model, layout: h.layout}
	x.Settings, x.Queue, x.Backend = h.Settings, x.operations, h.Backend
	x.Embed, x.Unembed, x.Norm = h.Embed, h.Unembed, h.Norm
	x.Pairs = Pairs{NormHidden: h.Pairs.NormHidden, NormEmbed: h.Pairs.NormEmbed, FC: h.Pairs.FC, Swapped: h.Pairs.Swapped}
	x.layer = layer(&x.Network)
	return x
}

// Release gives back the memory of calls.
func (h *Head) Release() { h.Pairs.Free(&h.Network) }

// operations queues the operations of a call. If no row is wanted, they only fill the KV cache, which reads a
// fraction of the head's weights.
func (h *Head) operations() {
	h.Pairs.Join(&h.Network)
	if len(h.Want) == 0 {
		h.layer.CatchUp()
		return
	}
	h.layer.Forward()
	h.Project()
}

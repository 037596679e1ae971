package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/state"
)

// Head is the multi-token-prediction head: one attention layer over pairs of a hidden
// state at t and the token at t+1, whose answer is a draft of the token at t+2. It shares
// the model's embedding and output matrices.
type Head struct {
	transformer
	layout state.Layout
	pairs  network.Pairs
	block  layer
}

// newHead is a head without weights.
func newHead(c *config) *Head {
	h := &Head{block: newLayer(c, true)}
	h.begin(c, h.operations)
	return h
}

var (
	_ model.Chainer    = (*Head)(nil)
	_ model.Repairable = (*Head)(nil)
)

// Layout is the state of a sequence: one layer of keys and values.
func (h *Head) Layout() state.Layout { return h.layout }

// Forward implements model.Head.
func (h *Head) Forward(batch []model.Span, only []int32) (model.Output, error) {
	return h.pairs.Forward(&h.Network, batch, only)
}

// Chain implements model.Chainer.
func (h *Head) Chain(batch []model.Span, only []int32, draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	return h.pairs.Chain(&h.Network, batch, only, draws)
}

// operations are those of a call.
func (h *Head) operations() {
	h.pairs.Join(&h.Network)
	if len(h.Want) == 0 {
		h.catchUp()
		return
	}
	h.layer(&h.block)
	h.Project()
}

// catchUp fills the KV cache. Nothing is drawn, so keys and values of the pairs are all
// that is computed, with a fraction of the head's weights.
func (h *Head) catchUp() {
	a, none := h.block.attn, h.q.RowRange(0, 0)
	h.Backend.RMSNorm(h.H, h.X, h.block.inputNorm, h.Eps)
	h.MatMul(h.H, backend.Product{Dst: h.k, W: a.k}, backend.Product{Dst: h.v, W: a.v})
	h.Backend.Attend(none, &a.Attention, h.block.at, none, h.k, h.v, h.Seqs)
}

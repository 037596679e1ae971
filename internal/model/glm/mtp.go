package glm

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/state"
)

// Head is the multi-token-prediction head: one layer with experts over pairs of a hidden state at
// t, after the final norm, and the token at t+1, whose answer is a draft of the token at t+2.
type Head struct {
	transformer
	model  *Model
	layout state.Layout
	pairs  network.Pairs
	block  layer
}

var (
	_ model.Chainer    = (*Head)(nil)
	_ model.Repairable = (*Head)(nil)
)

// newHead is a head of m without weights.
func newHead(m *Model) *Head {
	h := &Head{model: m, block: newLayer(m.cfg, false)}
	h.begin(m.cfg, h.operations)
	return h
}

// Layout is the state of a sequence: one layer of attention.
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

// catchUp fills the KV cache. Nothing is drawn, so what the layer remembers of the pairs is all
// that is computed, with a fraction of the head's weights.
func (h *Head) catchUp() {
	y, none := &h.block, h.q.RowRange(0, 0)
	h.Backend.RMSNorm(h.H, h.X, y.inputNorm, h.Eps)
	if a := y.latent; a != nil {
		h.MatMul(h.H, backend.Product{Dst: h.k, W: a.keyDown})
		h.Backend.Attend(none, &a.Attention, y.at, none, h.k, backend.Tensor{}, h.Seqs)
		return
	}
	a := y.attn
	h.MatMul(h.H, backend.Product{Dst: h.k, W: a.k, Bias: a.kBias}, backend.Product{Dst: h.v, W: a.v, Bias: a.vBias})
	h.Backend.Attend(none, &a.Attention, y.at, none, h.k, h.v, h.Seqs)
}

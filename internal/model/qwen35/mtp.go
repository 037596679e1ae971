package qwen35

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// Head is the multi-token-prediction head: one attention layer over pairs of a hidden
// state at t and the token at t+1, whose answer is a draft of the token at t+2. It shares
// the model's embedding and output matrices.
type Head struct {
	transformer
	layout     state.Layout
	normHidden backend.Tensor // [1, hidden]
	normEmbed  backend.Tensor // [1, hidden]
	fc         backend.Weight // [hidden, 2*hidden]: embedding first
	block      layer
	pair       backend.Tensor // [rows, 2*hidden]: the norms' results side by side
	swapped    bool           // a variant: fc takes the hidden state first
	chain      chaining
}

// newHead is a head without weights.
func newHead(c *config) *Head {
	h := &Head{transformer: transformer{cfg: c}, block: newLayer(c, true)}
	h.queue = h.operations
	return h
}

var _ model.Repairable = (*Head)(nil)

// Layout is the state of a sequence: one layer of keys and values.
func (h *Head) Layout() state.Layout { return h.layout }

// Forward implements model.Head.
func (h *Head) Forward(batch []model.Span, only []int32) (model.Output, error) {
	return h.forward(batch, only, backend.Tensor{})
}

// forward is Forward. If there are ids that the device has drawn, they are fed in place of the
// spans' tokens, one for each span.
func (h *Head) forward(batch []model.Span, only []int32, drawn backend.Tensor) (model.Output, error) {
	for i, s := range batch {
		if s.Hidden.Rows != len(s.Tokens) {
			return model.Output{}, fmt.Errorf("qwen35: span %d has %d tokens and %d hidden rows", i, len(s.Tokens), s.Hidden.Rows)
		}
	}
	c, err := h.begin(batch, only)
	if err != nil {
		return model.Output{}, err
	}
	if err := h.growPair(); err != nil {
		return model.Output{}, err
	}
	// A span's Hidden may be rows of the former call's result, so they are read before
	// anything of this call is written to the workspace they lie in. They lie elsewhere in
	// every call, so they are no part of the pass.
	at := 0
	_, _, hidden := h.halves()
	for _, s := range batch {
		h.b.RMSNorm(hidden.RowRange(at, at+s.Hidden.Rows), s.Hidden, h.normHidden, h.cfg.eps)
		at += s.Hidden.Rows
	}
	if drawn.Rows > 0 {
		h.b.(backend.Drawer).EmbedDrawn(c.x, h.embed, drawn)
		c.embedded = true
	}
	h.pass(c, batch)
	if len(c.want) == 0 {
		for _, s := range batch {
			s.State.Fed(len(s.Tokens), s.Drafts)
		}
		return model.Output{}, nil
	}
	out := h.finish(c, batch)
	out.Hidden = c.hidden // the chain goes on with the head's normed output
	return out, nil
}

// halves are the pairs of the running call, and where their parts are.
func (h *Head) halves() (pair, embedded, hidden backend.Tensor) {
	n := h.cfg.hidden
	pair = h.pair.RowRange(0, len(h.call.ids))
	embedded, hidden = pair.ColRange(0, n), pair.ColRange(n, 2*n)
	if h.swapped {
		embedded, hidden = hidden, embedded
	}
	return pair, embedded, hidden
}

// operations are those of a call.
func (h *Head) operations() {
	c := &h.call
	pair, embedded, _ := h.halves()
	h.embedding(c)
	h.b.RMSNorm(embedded, c.x, h.normEmbed, h.cfg.eps)
	h.matmul(pair, backend.Product{Dst: c.x, W: h.fc})
	if len(c.want) == 0 {
		h.catchUp(c)
		return
	}
	h.layer(c, &h.block)
	h.project(c)
}

// catchUp fills the KV cache. Nothing is drawn, so keys and values of the pairs are all
// that is computed, with a fraction of the head's weights.
func (h *Head) catchUp(c *call) {
	a := h.block.attn
	h.b.RMSNorm(c.h, c.x, h.block.inputNorm, h.cfg.eps)
	h.matmul(c.h, backend.Product{Dst: c.k, W: a.k}, backend.Product{Dst: c.v, W: a.v})
	none := c.q.RowRange(0, 0)
	h.b.Attend(none, &a.Attention, h.block.at, none, c.k, c.v, c.seqs)
}

// growPair makes pair fit as many rows as the workspace.
func (h *Head) growPair() error {
	if h.pair.Rows >= h.work.rows {
		return nil
	}
	h.b.Free(h.pair)
	var err error
	h.pair, err = h.b.Alloc(dtype.F32, h.work.rows, 2*h.cfg.hidden)
	return err
}

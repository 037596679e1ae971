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
}

// newHead is a head without weights.
func newHead(c *config) *Head {
	return &Head{transformer: transformer{cfg: c}, block: newLayer(c, true)}
}

var _ model.Repairable = (*Head)(nil)

// Layout is the state of a sequence: one layer of keys and values.
func (h *Head) Layout() state.Layout { return h.layout }

// Forward implements model.Head.
func (h *Head) Forward(batch []model.Span, only []int32) (model.Output, error) {
	for i, s := range batch {
		if s.Hidden.Rows != len(s.Tokens) {
			return model.Output{}, fmt.Errorf("qwen35: span %d has %d tokens and %d hidden rows", i, len(s.Tokens), s.Hidden.Rows)
		}
	}
	c, err := h.begin(batch)
	if err != nil {
		return model.Output{}, err
	}
	if err := h.growPair(); err != nil {
		return model.Output{}, err
	}
	n, eps := h.cfg.hidden, h.cfg.eps
	pair := h.pair.RowRange(0, len(c.ids))
	embedded, hidden := pair.ColRange(0, n), pair.ColRange(n, 2*n)
	if h.swapped {
		embedded, hidden = hidden, embedded
	}
	// A span's Hidden may be rows of the former call's result, so they are read before
	// anything of this call is written to the workspace they lie in.
	at := 0
	for _, s := range batch {
		h.b.RMSNorm(hidden.RowRange(at, at+s.Hidden.Rows), s.Hidden, h.normHidden, eps)
		at += s.Hidden.Rows
	}
	model.Embed(h.b, c.x, h.embed, c.ids, batch)
	h.b.RMSNorm(embedded, c.x, h.normEmbed, eps)
	h.matmul(pair, backend.Product{Dst: c.x, W: h.fc})
	if len(c.want) == 0 {
		h.catchUp(c, batch)
		return model.Output{}, nil
	}
	h.layer(c, &h.block)
	out, err := h.finish(c, batch, only)
	out.Hidden = c.hidden // the chain goes on with the head's normed output
	return out, err
}

// catchUp fills the KV cache. Nothing is drawn, so keys and values of the pairs are all
// that is computed, with a fraction of the head's weights.
func (h *Head) catchUp(c *call, batch []model.Span) {
	a := h.block.attn
	h.b.RMSNorm(c.h, c.x, h.block.inputNorm, h.cfg.eps)
	h.matmul(c.h, backend.Product{Dst: c.k, W: a.k}, backend.Product{Dst: c.v, W: a.v})
	none := c.q.RowRange(0, 0)
	h.b.Attend(none, &a.Attention, h.block.at, none, c.k, c.v, c.seqs)
	for _, s := range batch {
		s.State.Fed(len(s.Tokens), s.Drafts)
	}
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

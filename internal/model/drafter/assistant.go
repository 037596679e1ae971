package drafter

import (
	"fmt"
	"iter"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Assistant is a drafter without a KV cache: its layers compute queries and read the keys and values of the model. Its input is a token
// and a row: the model's hidden row after the final norm or, for further drafts, its own output row. All tokens of a draft have the
// position behind the model's tokens.
type Assistant struct {
	transformer
	layers    []assistantLayer
	pre, post backend.Weight // [width, 2*model's width], [model's width, width]

	pair, token, next backend.Tensor // of the call: tokens beside hidden rows, the tokens, the rows to draft further from
	chain             network.Chain
	rows              network.Gatherer
	spans             []model.Span
}

var (
	_ model.Chainer  = (*Assistant)(nil)
	_ model.Borrower = (*Assistant)(nil)
)

// assistantLayer is a layer: attention, then a feed-forward, each between two norms.
type assistantLayer struct {
	attn                                   backend.Attention
	at                                     backend.Place  // of the memory that it reads
	inputNorm, postNorm, preFeed, postFeed backend.Tensor // [1, width]
	query, out, gate, up, down             backend.Weight
	scalar                                 float32 // of the residual stream behind the layer
	q, mixed                               backend.Tensor
}

// newAssistant is an assistant without weights.
func newAssistant(c *config) *Assistant {
	a := &Assistant{layers: make([]assistantLayer, len(c.layers))}
	a.cfg = c
	a.Package, a.Vocab, a.Width, a.Eps, a.Queue = "drafter", c.target.Vocab, c.width, c.eps, a.operations
	a.LogitCap, a.Embedded = c.logitCap, &a.token
	a.Parts = []network.Part{
		{To: &a.gate, Width: c.intermediate},
		{To: &a.up, Width: c.intermediate},
		{To: &a.pair, Width: 2 * c.target.Width},
		{To: &a.next, Width: c.target.Width},
	}
	for i := range a.layers {
		y, k := &a.layers[i], &c.assistant[i]
		y.attn = backend.Attention{
			Heads: c.heads, KVHeads: k.kvHeads, HeadDim: k.dim, Eps: c.eps, Freqs: k.freqs, Scale: 1, Window: c.layers[i].window, Before: !c.itself,
		}
		a.Parts = append(a.Parts, network.Part{To: &y.q, Width: c.heads * k.dim}, network.Part{To: &y.mixed, Width: c.heads * k.dim})
	}
	return a
}

// borrow finds what the assistant reads of the model.
func (a *Assistant) borrow(target model.Lender) error {
	if err := a.find(target.Layout()); err != nil {
		return err
	}
	a.Embed, _ = target.Matrices()
	a.EmbedFactor = target.EmbeddingFactor()
	return nil
}

// find finds the keys and values that the layers read: those of the model's last layers with the same windows.
func (a *Assistant) find(l state.Layout) error {
	places := l.Places()
	for i := range a.layers {
		y, found := &a.layers[i], false
		for j, x := range l.Layers {
			kv, ok := x.(state.KV)
			if !ok || kv.Window != y.attn.Window {
				continue
			}
			if found = kv.Heads == y.attn.KVHeads && kv.Key == y.attn.HeadDim && kv.Value == y.attn.HeadDim; !found {
				return fmt.Errorf("drafter: layer %d reads %d heads of %d numbers, but layer %d of the model, whose window is the same, has %d of %d: it was made for another model",
					i, y.attn.KVHeads, y.attn.HeadDim, j, kv.Heads, kv.Key)
			}
			y.at = places[j]
		}
		if !found {
			return fmt.Errorf("drafter: layer %d has a window of %d tokens (0: none), but no layer of the model has: it was made for another model", i, y.attn.Window)
		}
	}
	return nil
}

// weights are the rows of the assistant's table.
func (a *Assistant) weights() iter.Seq[*weights.Weight] {
	c, p := a.cfg, weights.DrafterPrefix
	w, target := c.width, c.target.Width
	list := []weights.Weight{
		weights.NewMatrix(&a.Unembed, p+"embed_tokens", c.target.Vocab, w), weights.NewGain(&a.Norm, p+"norm", w),
		weights.NewMatrix(&a.pre, p+"pre_projection", w, 2*target), weights.NewMatrix(&a.post, p+"post_projection", target, w),
	}
	for i := range a.layers {
		y, p := &a.layers[i], fmt.Sprintf("%slayers.%d.", p, i)
		heads := c.heads * y.attn.HeadDim
		list = append(list,
			weights.NewGain(&y.inputNorm, p+"input_layernorm", w),
			weights.NewMatrix(&y.query, p+"self_attn.q_proj", heads, w),
			weights.NewGain(&y.attn.QNorm, p+"self_attn.q_norm", y.attn.HeadDim),
			weights.NewMatrix(&y.out, p+"self_attn.o_proj", w, heads),
			weights.NewGain(&y.postNorm, p+"post_attention_layernorm", w),
			weights.NewGain(&y.preFeed, p+"pre_feedforward_layernorm", w),
			weights.NewMatrix(&y.gate, p+"mlp.gate_proj", c.intermediate, w),
			weights.NewMatrix(&y.up, p+"mlp.up_proj", c.intermediate, w),
			weights.NewMatrix(&y.down, p+"mlp.down_proj", w, c.intermediate),
			weights.NewGain(&y.postFeed, p+"post_feedforward_layernorm", w),
			weights.NewVector(nil, weights.Vector, p+"layer_scalar", 1, 1).Then(func(v []float32) { y.scalar = v[0] }))
	}
	return func(yield func(*weights.Weight) bool) { weights.Each(list, yield) }
}

// share takes over the weights of another assistant.
func (a *Assistant) share(from *Assistant) {
	a.pre, a.post, a.EmbedFactor = from.pre, from.post, from.EmbedFactor
	for i := range a.layers {
		y, old := &a.layers[i], from.layers[i]
		old.attn.Before, old.q, old.mixed = y.attn.Before, backend.Tensor{}, backend.Tensor{}
		*y = old
	}
}

// Layout is the state of a sequence: none.
func (a *Assistant) Layout() state.Layout { return state.Layout{Head: true} }

// Borrows implements model.Borrower.
func (a *Assistant) Borrows() {}

// Forward implements model.Head: each span has one token, and a Lender.
func (a *Assistant) Forward(batch []model.Span, only []int32) (model.Output, error) {
	return a.forward(batch, only, backend.Tensor{})
}

// Chain implements model.Chainer.
func (a *Assistant) Chain(batch []model.Span, only []int32, draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	return a.chain.Run(&a.Network, batch, draws, backend.Tensor{}, func(batch []model.Span, drawn backend.Tensor) (model.Output, error) {
		return a.forward(batch, only, drawn)
	})
}

// forward is Forward. If the device has drawn ids, they are fed in place of the spans' tokens.
func (a *Assistant) forward(batch []model.Span, only []int32, drawn backend.Tensor) (model.Output, error) {
	width := a.cfg.target.Width
	for i := range batch {
		s := &batch[i]
		if s.Lender == nil || len(s.Tokens) != 1 || s.Want != 1 || len(s.Inputs) > 0 || s.Hidden.Rows != 1 || s.Hidden.Cols != width {
			return model.Output{}, fmt.Errorf("drafter: span %d has %d tokens and %d rows of %d numbers, want one token, a row of %d and lent memory",
				i, len(s.Tokens), s.Hidden.Rows, s.Hidden.Cols, width)
		}
	}
	if a.cfg.itself {
		a.spans = append(a.spans[:0], batch...)
		batch = a.spans
		for i := range batch {
			batch[i].At--
		}
	}
	if err := a.Begin(batch, only); err != nil {
		return model.Output{}, err
	}
	a.token = a.pair.ColRange(0, width)
	// A span's Hidden may be rows of the former call's result. They lie elsewhere in every call, so they are no part of the pass.
	a.rows.Copy(a.Backend, a.pair.ColRange(width, 2*width), batch)
	a.EmbedDrawn(drawn)
	a.Pass(batch)
	out := a.Finish(batch)
	out.Hidden = a.next
	return out, nil
}

// operations are those of a call.
func (a *Assistant) operations() {
	b := a.Backend
	a.Embedding()
	a.MatMul(a.pair, backend.Product{Dst: a.X, W: a.pre})
	for i := range a.layers {
		y := &a.layers[i]
		b.RMSNorm(a.H, a.X, y.inputNorm, a.Eps)
		a.MatMul(a.H, backend.Product{Dst: y.q, W: y.query})
		b.Attend(y.mixed, &y.attn, y.at, y.q, backend.Tensor{}, backend.Tensor{}, a.Seqs)
		a.MatMul(y.mixed, backend.Product{Dst: a.H, W: y.out})
		b.NormAdd(a.X, a.H, y.postNorm, a.Eps, 1)
		b.RMSNorm(a.H, a.X, y.preFeed, a.Eps)
		a.MatMul(a.H, backend.Product{Dst: a.gate, W: y.gate}, backend.Product{Dst: a.up, W: y.up})
		b.GLU(a.gate, a.gate, a.up, backend.GELUTanh)
		a.MatMul(a.gate, backend.Product{Dst: a.H, W: y.down})
		b.NormAdd(a.X, a.H, y.postFeed, a.Eps, y.scalar)
	}
	a.Project()
	a.MatMul(a.Hidden, backend.Product{Dst: a.next, W: a.post})
}

package drafter

import (
	"fmt"
	"iter"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Eagle is an EAGLE-3 drafter: a head whose rows are tapped between layers of the model. A row is the taps of a position,
// side by side, or a row of its own output, which is what it drafts further from.
type Eagle struct {
	transformer
	layout   state.Layout
	block    layer
	fc       backend.Weight   // [width, taps*model's width]
	allNorm  backend.Tensor   // of a row of taps
	tapNorms []backend.Tensor // of each tap

	taps, fused, pair backend.Tensor // the rows of the call, after fc, with their tokens
	rows              network.Gatherer
	chain             network.Chain
}

var _ model.Chainer = (*Eagle)(nil)

// newEagle is a drafter without weights.
func newEagle(c *config) *Eagle {
	e := &Eagle{block: newLayer(c, 0), tapNorms: make([]backend.Tensor, len(c.taps))}
	e.begin(c, e.operations)
	e.Parts = append(e.Parts,
		network.Part{To: &e.taps, Width: e.tapped()}, network.Part{To: &e.fused, Width: c.width}, network.Part{To: &e.pair, Width: 2 * c.width})
	return e
}

// tapped is the width of a row of taps.
func (e *Eagle) tapped() int { return len(e.cfg.taps) * e.cfg.target.Width }

// weights are the rows of the drafter's table.
func (e *Eagle) weights() iter.Seq[*weights.Weight] {
	c, p := e.cfg, weights.DrafterPrefix
	list := outerWeights(nil, &e.transformer)
	if !c.noFC {
		list = append(list, weights.NewMatrix(&e.fc, p+"fc", c.width, e.tapped()))
	}
	if c.beforeFC {
		list = append(list, weights.NewGain(&e.allNorm, p+"input_norm", e.tapped()))
	}
	for i := range e.tapNorms {
		if c.fcNorms {
			list = append(list, weights.NewGain(&e.tapNorms[i], fmt.Sprintf("%sfc_norm.%d", p, i), c.target.Width))
		}
	}
	list = e.block.weights(list, c, 0, 2*c.width)
	return func(yield func(*weights.Weight) bool) { weights.Each(list, yield) }
}

// outerWeights appends the rows of embedding, output matrix and last norm to a list.
func outerWeights(list []weights.Weight, n *transformer) []weights.Weight {
	c, p := n.cfg, weights.DrafterPrefix
	if c.ownEmbed {
		list = append(list, n.lend(weights.NewMatrix(&n.Embed, p+"embed_tokens", c.target.Vocab, c.width), &n.lentEmbed))
	}
	if c.ownOutput {
		list = append(list, n.lend(weights.NewMatrix(&n.Unembed, p+"lm_head", c.draftVocab, c.width), &n.lentOutput))
	}
	if c.mapped {
		list = append(list, weights.NewIDs(&n.ids, p+"d2t", c.draftVocab))
	}
	return append(list, weights.NewGain(&n.Norm, p+"norm", c.width))
}

// Layout is the state of a sequence: one layer of keys and values.
func (e *Eagle) Layout() state.Layout { return e.layout }

// Forward implements model.Head. Rows in place of tokens have the model's width: a drafter of another width takes the embedding of some
// token there. Of positions the first of the three counts.
func (e *Eagle) Forward(batch []model.Span, only []int32) (model.Output, error) {
	return e.forward(batch, only, backend.Tensor{})
}

// Chain implements model.Chainer.
func (e *Eagle) Chain(batch []model.Span, only []int32, draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	return e.chain.Run(&e.Network, batch, draws, e.columns, func(batch []model.Span, drawn backend.Tensor) (model.Output, error) {
		return e.forward(batch, only, drawn)
	})
}

// forward is Forward. If the device has drawn ids, they are fed in place of the spans' tokens, one for each span.
func (e *Eagle) forward(batch []model.Span, only []int32, drawn backend.Tensor) (model.Output, error) {
	width := batch[0].Hidden.Cols
	for i := range batch {
		s := &batch[i]
		if s.Hidden.Rows != len(s.Tokens) || s.Hidden.Cols != width || width != e.tapped() && width != e.Width {
			return model.Output{}, fmt.Errorf("drafter: span %d has %d tokens and %d rows of %d numbers, want %d or %d",
				i, len(s.Tokens), s.Hidden.Rows, s.Hidden.Cols, e.tapped(), e.Width)
		}
	}
	if e.Width != e.cfg.target.Width {
		batch = e.tokensOnly(batch)
	}
	if err := e.Begin(batch, only); err != nil {
		return model.Output{}, err
	}
	e.fuse(batch, width)
	e.EmbedDrawn(drawn)
	e.Pass(batch)
	out := e.Finish(batch)
	if len(e.Want) == 0 {
		return model.Output{}, nil
	}
	if !e.cfg.normOutput {
		out.Hidden = e.X
	}
	return out, nil
}

// tokensOnly are spans without rows in place of tokens.
func (e *Eagle) tokensOnly(batch []model.Span) []model.Span {
	if !model.HasInputs(batch) {
		return batch
	}
	batch = slices.Clone(batch)
	for i := range batch {
		s := &batch[i]
		s.Inputs, s.Tokens = nil, slices.Clone(s.Tokens)
		for j, id := range s.Tokens {
			s.Tokens[j] = max(id, 0)
		}
	}
	return batch
}

// fuse brings the rows of a call to e.fused. They lie elsewhere in every call, so that is no part of the pass.
func (e *Eagle) fuse(batch []model.Span, width int) {
	b := e.Backend
	if width == e.Width {
		e.rows.Copy(b, e.fused, batch)
		return
	}
	switch c := e.cfg; {
	case c.beforeFC:
		b.RMSNorm(e.taps, e.rows.Gather(b, e.taps, batch), e.allNorm, e.Eps)
	case c.fcNorms:
		all := e.rows.Gather(b, e.taps, batch)
		for i, gain := range e.tapNorms {
			from, to := i*c.target.Width, (i+1)*c.target.Width
			b.RMSNorm(e.taps.ColRange(from, to), all.ColRange(from, to), gain, e.Eps)
		}
	default:
		e.MatMul(e.rows.Gather(b, e.taps, batch), backend.Product{Dst: e.fused, W: e.fc})
		return
	}
	e.MatMul(e.taps, backend.Product{Dst: e.fused, W: e.fc})
}

// operations are those of a call.
func (e *Eagle) operations() {
	b, y, w := e.Backend, &e.block, e.Width
	token, row := e.pair.ColRange(0, w), e.pair.ColRange(w, 2*w)
	e.Embedding()
	b.RMSNorm(token, e.X, y.inputNorm, e.Eps)
	b.RMSNorm(row, e.fused, y.hiddenNorm, e.Eps)
	if len(e.Want) == 0 { // nothing is drawn: keys and values are all that is needed
		none := e.q.RowRange(0, 0)
		e.MatMul(e.pair, y.k.to(e.k), y.v.to(e.v))
		b.Attend(none, &y.attn, y.at, none, e.k, e.v, e.Seqs)
		return
	}
	residual := e.fused
	if e.cfg.beforeResidual {
		residual = row
	}
	b.Copy(e.X, residual)
	e.MatMul(e.pair, y.q.to(e.q), y.k.to(e.k), y.v.to(e.v))
	b.Attend(e.mixed, &y.attn, y.at, e.q, e.k, e.v, e.Seqs)
	e.MatMul(e.mixed, y.o.added(e.X))
	b.RMSNorm(e.H, e.X, y.postNorm, e.Eps)
	e.feed(y, e.H, e.X, true)
	e.Project()
}

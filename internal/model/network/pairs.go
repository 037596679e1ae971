package network

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// Pairs is how a multi-token-prediction head begins: hidden rows at t and embedded tokens at t+1 are
// normalized, put side by side and multiplied with one matrix.
type Pairs struct {
	NormHidden, NormEmbed backend.Tensor // [1, width]
	FC                    backend.Weight // [width, 2*width]: embedding first
	Swapped               bool           // FC takes the hidden state first

	memory backend.Tensor // [rows, 2*width]: the norms' results side by side
	chain  Chain
	rows   Gatherer
}

// Forward implements model.Head for the network, whose operations begin with Join.
func (p *Pairs) Forward(n *Network, batch []model.Span, only []int32) (model.Output, error) {
	return p.forward(n, batch, only, backend.Tensor{})
}

// Chain implements model.Chainer for the network.
func (p *Pairs) Chain(n *Network, batch []model.Span, only []int32, draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	return p.chain.Run(n, batch, draws, backend.Tensor{}, func(batch []model.Span, drawn backend.Tensor) (model.Output, error) {
		return p.forward(n, batch, only, drawn)
	})
}

// forward is Forward. If the device has drawn ids, they are fed in place of the spans' tokens, one for
// each span.
func (p *Pairs) forward(n *Network, batch []model.Span, only []int32, drawn backend.Tensor) (model.Output, error) {
	for i := range batch {
		if s := &batch[i]; s.Hidden.Rows != len(s.Tokens) {
			return model.Output{}, fmt.Errorf("%s: span %d has %d tokens and %d hidden rows", n.Package, i, len(s.Tokens), s.Hidden.Rows)
		}
	}
	if err := n.Begin(batch, only); err != nil {
		return model.Output{}, err
	}
	if err := p.grow(n); err != nil {
		return model.Output{}, err
	}
	// A span's Hidden may be rows of the former call's result, so they are read before anything
	// of this call is written to the workspace they lie in. They lie elsewhere in every call, so
	// they are no part of the pass.
	_, _, hidden := p.halves(n)
	n.Backend.RMSNorm(hidden, p.rows.Gather(n.Backend, hidden, batch), p.NormHidden, n.Eps)
	n.EmbedDrawn(drawn)
	n.Pass(batch)
	out := n.Finish(batch)
	if len(n.Want) == 0 {
		return model.Output{}, nil
	}
	return out, nil
}

// Join is the first operations of a call. They leave the joined pairs in X.
func (p *Pairs) Join(n *Network) {
	pair, embedded, _ := p.halves(n)
	n.Embedding()
	n.Backend.RMSNorm(embedded, n.X, p.NormEmbed, n.Eps)
	n.MatMul(pair, backend.Product{Dst: n.X, W: p.FC})
}

// halves are the pairs of the running call, and where their parts are.
func (p *Pairs) halves(n *Network) (pair, embedded, hidden backend.Tensor) {
	pair = p.memory.RowRange(0, len(n.IDs))
	embedded, hidden = pair.ColRange(0, n.Width), pair.ColRange(n.Width, 2*n.Width)
	if p.Swapped {
		embedded, hidden = hidden, embedded
	}
	return pair, embedded, hidden
}

// grow makes space for as many pairs as the workspace has rows.
func (p *Pairs) grow(n *Network) error {
	if p.memory.Rows >= n.work.rows {
		return nil
	}
	n.Backend.Free(p.memory)
	var err error
	p.memory, err = n.Backend.Alloc(dtype.F32, n.work.rows, 2*n.Width)
	return err
}

// Free gives the memory of calls back, the network's too.
func (p *Pairs) Free(n *Network) {
	n.Free()
	n.Backend.Free(p.memory)
	p.chain.Free(n.Backend)
	p.memory = backend.Tensor{}
}

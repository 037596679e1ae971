package network

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// chain is what a Chain works in.
type chain struct {
	drawn backend.Tensor // [calls*spans, 1]
	spans []model.Span
	flat  []int32
	ids   [][]int32
}

// unknown stands for a token that only the device knows.
var unknown = []int32{0}

// Chain implements model.Chainer for the network.
func (p *Pairs) Chain(n *Network, batch []model.Span, only []int32, draws [][]backend.Draw) (ids [][]int32, ok bool, err error) {
	device, ok := n.Backend.(backend.Drawer)
	if !ok {
		return nil, false, nil
	}
	w, spans := &p.chain, len(batch)
	if w.drawn.Rows < spans*len(draws) {
		n.Backend.Free(w.drawn)
		if w.drawn, err = n.Backend.Alloc(dtype.F32, spans*len(draws), 1); err != nil {
			return nil, true, err
		}
	}
	w.spans = append(w.spans[:0], batch...)
	var last backend.Tensor
	for i, how := range draws {
		out, err := p.forward(n, w.spans, only, last)
		if err != nil {
			return nil, true, err
		}
		last = w.drawn.RowRange(i*spans, (i+1)*spans)
		device.Draw(last, out.Logits, how)
		row := 0
		for j, s := range w.spans {
			row += len(s.Tokens)
			w.spans[j] = model.Span{State: s.State, Tokens: unknown, Want: 1, Hidden: out.Hidden.RowRange(row-1, row)}
		}
	}
	return w.read(n.Backend, spans, len(draws))
}

// read brings what was drawn to the host.
func (w *chain) read(b backend.Backend, n, calls int) (ids [][]int32, ok bool, err error) {
	drawn, err := b.Host(w.drawn.RowRange(0, n*calls))
	if err != nil {
		return nil, true, err
	}
	w.flat, w.ids = w.flat[:0], w.ids[:0]
	for _, id := range drawn {
		w.flat = append(w.flat, int32(id))
	}
	for i := range calls {
		w.ids = append(w.ids, w.flat[i*n:(i+1)*n])
	}
	return w.ids, true, nil
}

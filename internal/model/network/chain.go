package network

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// chain is the workspace of Chain.
type chain struct {
	drawn backend.Tensor // [draws of all calls, 3]
	spans []model.Span
	flat  []model.Drawn
	lists [][]model.Drawn
}

// unknown stands for a token that only the device knows.
var unknown = []int32{0}

// Chain implements model.Chainer for the network.
func (p *Pairs) Chain(n *Network, batch []model.Span, only []int32, draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	device, ok := n.Backend.(backend.Drawer)
	if !ok {
		return nil, false, nil
	}
	total := 0
	for _, list := range draws {
		total += len(list)
	}
	w := &p.chain
	if w.drawn.Rows < total {
		n.Backend.Free(w.drawn)
		if w.drawn, err = n.Backend.Alloc(dtype.F32, total, 3); err != nil {
			return nil, true, err
		}
	}
	w.spans = append(w.spans[:0], batch...)
	var last backend.Tensor
	at := 0
	for _, list := range draws {
		w.spans = w.spans[:len(list)]
		if at > 0 {
			last.Rows = len(list)
		}
		out, err := p.forward(n, w.spans, only, last)
		if err != nil {
			return nil, true, err
		}
		last = w.drawn.RowRange(at, at+len(list))
		at += len(list)
		device.Draw(last, out.Logits, list)
		row := 0
		for j, s := range w.spans {
			row += len(s.Tokens)
			w.spans[j] = model.Span{State: s.State, Tokens: unknown, Want: 1, Hidden: out.Hidden.RowRange(row-1, row)}
		}
	}
	return w.read(n.Backend, draws, total)
}

// read copies the results to the host.
func (w *chain) read(b backend.Backend, draws [][]backend.Draw, total int) (drawn [][]model.Drawn, ok bool, err error) {
	all, err := b.Host(w.drawn.RowRange(0, total))
	if err != nil {
		return nil, true, err
	}
	w.flat, w.lists = w.flat[:0], w.lists[:0]
	for ; len(all) > 0; all = all[3:] {
		w.flat = append(w.flat, model.Drawn{ID: int32(all[0]), Prob: all[1]})
	}
	at := 0
	for _, list := range draws {
		w.lists = append(w.lists, w.flat[at:at+len(list)])
		at += len(list)
	}
	return w.lists, true, nil
}

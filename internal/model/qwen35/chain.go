package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

var _ model.Chainer = (*Head)(nil)

// chaining is what a Chain works in.
type chaining struct {
	drawn backend.Tensor // [calls*spans, 1]
	spans []model.Span
	flat  []int32
	ids   [][]int32
}

// unknown stands for a token that only the device knows.
var unknown = []int32{0}

// Chain implements model.Chainer.
func (h *Head) Chain(batch []model.Span, only []int32, draws [][]backend.Draw) (ids [][]int32, ok bool, err error) {
	device, ok := h.b.(backend.Drawer)
	if !ok {
		return nil, false, nil
	}
	w, n := &h.chain, len(batch)
	if w.drawn.Rows < n*len(draws) {
		h.b.Free(w.drawn)
		if w.drawn, err = h.b.Alloc(dtype.F32, n*len(draws), 1); err != nil {
			return nil, true, err
		}
	}
	w.spans = append(w.spans[:0], batch...)
	var last backend.Tensor
	for i, how := range draws {
		out, err := h.forward(w.spans, only, last)
		if err != nil {
			return nil, true, err
		}
		last = w.drawn.RowRange(i*n, (i+1)*n)
		device.Draw(last, out.Logits, how)
		row := 0
		for j, s := range w.spans {
			row += len(s.Tokens)
			w.spans[j] = model.Span{State: s.State, Tokens: unknown, Want: 1, Hidden: out.Hidden.RowRange(row-1, row)}
		}
	}
	return w.read(h.b, n, len(draws))
}

// read brings what was drawn to the host.
func (w *chaining) read(b backend.Backend, n, calls int) (ids [][]int32, ok bool, err error) {
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

package network

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// Drawing is draws by the device of all draft tokens of a call, which the host reads together. The zero value has no memory.
type Drawing struct {
	device backend.Backend
	drawer backend.Drawer
	drawn  backend.Tensor // [draws, 3]
	draws  []backend.Draw
	steps  []int // first draw of each step, and the number of draws
	flat   []model.Drawn
	lists  [][]model.Drawn
}

// Begin begins with the draws of each step. It reports false if the device cannot draw.
func (w *Drawing) Begin(b backend.Backend, draws [][]backend.Draw) (ok bool, err error) {
	if w.drawer, ok = b.(backend.Drawer); !ok {
		return false, nil
	}
	w.device, w.draws, w.steps = b, w.draws[:0], w.steps[:0]
	for _, list := range draws {
		w.steps = append(w.steps, len(w.draws))
		w.draws = append(w.draws, list...)
	}
	w.steps = append(w.steps, len(w.draws))
	if w.drawn.Rows < len(w.draws) {
		b.Free(w.drawn)
		w.drawn, err = b.Alloc(dtype.F32, len(w.draws), 3)
	}
	return true, err
}

// Draw makes the draws of the steps from first up to end, from a row of logits each. tokens is that of backend.Drawer.
func (w *Drawing) Draw(first, end int, logits, tokens backend.Tensor) {
	from, to := w.steps[first], w.steps[end]
	w.drawer.Draw(w.drawn.RowRange(from, to), logits, tokens, w.draws[from:to])
}

// Candidates lists the candidates of all draws: see backend.Drawer. The draws are then draws from all candidates.
func (w *Drawing) Candidates(ids, best, logits backend.Tensor) {
	w.drawer.Candidates(ids, best, logits, w.draws)
	for i := range w.draws {
		d := &w.draws[i]
		d.Cols, d.First, d.Own = 0, 0, nil
	}
}

// Of is the first n draws of a step.
func (w *Drawing) Of(step, n int) backend.Tensor {
	return w.drawn.RowRange(w.steps[step], w.steps[step]+n)
}

// Read copies the results to the host, a list for each step. It is valid until the next call.
func (w *Drawing) Read() ([][]model.Drawn, error) {
	all, err := w.device.Host(w.drawn.RowRange(0, len(w.draws)))
	if err != nil {
		return nil, err
	}
	w.flat, w.lists = w.flat[:0], w.lists[:0]
	for ; len(all) > 0; all = all[3:] {
		w.flat = append(w.flat, model.Drawn{ID: int32(all[0]), Prob: all[1]})
	}
	for i, from := range w.steps[:len(w.steps)-1] {
		w.lists = append(w.lists, w.flat[from:w.steps[i+1]])
	}
	return w.lists, nil
}

// Free gives the memory back to the network's device.
func (w *Drawing) Free(b backend.Backend) {
	b.Free(w.drawn)
	w.drawn = backend.Tensor{}
}

// Chain is the workspace of model.Chainer's Chain.
type Chain struct {
	Drawing
	spans []model.Span
}

// unknown stands for a token that only the device knows.
var unknown = []int32{0}

// Run implements model.Chainer for a network. forward is its call over spans. If the device has drawn ids, they are fed in
// place of the spans' tokens, one for each span. tokens is that of backend.Drawer.
func (w *Chain) Run(n *Network, batch []model.Span, draws [][]backend.Draw, tokens backend.Tensor,
	forward func(batch []model.Span, drawn backend.Tensor) (model.Output, error),
) (drawn [][]model.Drawn, ok bool, err error) {
	if ok, err := w.Begin(n.Backend, draws); !ok || err != nil {
		return nil, ok, err
	}
	w.spans = append(w.spans[:0], batch...)
	for i, list := range draws {
		w.spans = w.spans[:len(list)]
		var last backend.Tensor
		if i > 0 {
			last = w.Of(i-1, len(list))
		}
		out, err := forward(w.spans, last)
		if err != nil {
			return nil, true, err
		}
		w.Draw(i, i+1, out.Logits, tokens)
		row := 0
		for j, s := range w.spans {
			row += len(s.Tokens)
			w.spans[j] = model.Span{State: s.State, Lender: s.Lender, At: s.At, Tokens: unknown, Want: 1, Hidden: out.Hidden.RowRange(row-1, row)}
		}
	}
	drawn, err = w.Read()
	return drawn, true, err
}

package state

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Layout is the memory that a model needs per sequence. The zero Layout needs none.
type Layout struct {
	KVLayers, KVHeads, HeadDim int        // attention
	KVType                     dtype.Type // of keys and values: F32, F16 or I8

	DeltaLayers                            int // recurrent layers
	KeyHeads, ValueHeads, KeyDim, ValueDim int
	Kernel                                 int // taps of the convolution

	MaxDrafts int // maximum number of drafts in one call
}

// page is a page's shape: PageTokens positions of every layer.
func (l *Layout) page() shape {
	return shape{page: true, t: l.KVType, rows: l.KVLayers * 2 * l.KVHeads * backend.PageTokens, cols: backend.PageCols(l.KVType, l.HeadDim)}
}

// PageBytes is the memory of backend.PageTokens positions.
func (l *Layout) PageBytes() int64 { return l.page().bytes() }

// RecurrentBytes is the memory a sequence needs whatever its length.
func (l *Layout) RecurrentBytes() int64 { return l.full().shape().bytes() }

// pages is how many pages a number of tokens needs.
func (l *Layout) pages(tokens int) int {
	if l.KVLayers == 0 || tokens <= 0 {
		return 0
	}
	return (tokens + backend.PageTokens - 1) / backend.PageTokens
}

// recurrent is the state of recurrent layers: one piece of memory, in which the tensors of
// backend.Recurrent lie one after another, layer by layer.
type recurrent struct {
	layers int
	parts  [5][2]int // rows and columns of each tensor
}

// full is what a State has.
func (l *Layout) full() recurrent { return l.recurrent(l.MaxDrafts, l.MaxDrafts) }

// copied is what a Snapshot has with kept drafts to replay: the input rows that are still
// needed, and what the drafts will do.
func (l *Layout) copied(kept int) recurrent { return l.recurrent(0, kept) }

// recurrent has a number of input rows beyond those that the convolution needs, and space for
// a number of drafts.
func (l *Layout) recurrent(inputs, drafts int) recurrent {
	keys, values := l.KeyHeads*l.KeyDim, l.ValueHeads*l.ValueDim
	return recurrent{l.DeltaLayers, [5][2]int{
		{l.ValueHeads * l.KeyDim, l.ValueDim},
		{l.Kernel - 1 + inputs, 2*keys + values},
		{drafts, keys},
		{drafts, values},
		{drafts, l.ValueHeads},
	}}
}

// line is the numbers of a cache line, at which every tensor begins.
const line = 16

// shape is one row with the tensors of all layers.
func (r recurrent) shape() shape {
	n := 0
	for _, p := range r.parts {
		n += (p[0]*p[1] + line - 1) / line * line
	}
	return shape{t: dtype.F32, rows: 1, cols: n * r.layers}
}

// carve finds the tensors in their memory.
func (r recurrent) carve(t backend.Tensor) []backend.Recurrent {
	list := make([]backend.Recurrent, r.layers)
	at := t.Offset
	for i := range list {
		for j, part := range tensors(&list[i]) {
			rows, cols := r.parts[j][0], r.parts[j][1]
			*part = backend.Tensor{Type: t.Type, Rows: rows, Cols: cols, Stride: cols, Offset: at, Mem: t.Mem}
			at += (rows*cols + line - 1) / line * line
		}
	}
	return list
}

// tensors are the fields of r in order.
func tensors(r *backend.Recurrent) [5]*backend.Tensor {
	return [5]*backend.Tensor{&r.State, &r.Tail, &r.Keys, &r.Deltas, &r.Decays}
}

package state

import (
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Layout is the state of a model for a sequence. The zero Layout is that of a model without
// state.
type Layout struct {
	Layers    []Layer // in the order of the model's
	MaxDrafts int     // maximum number of drafts in one call, unless the state is deepened
	Head      bool    // they are a head's, which is one part of its model: see backend.Part
}

// Layer is the state of one layer: a KV, a Latent, a Delta, or nil for none.
// Kinds are comparable, and a State knows only the size of their memory.
type Layer interface {
	// Paged is the layer's part of a page: bytes, and the type of its numbers.
	Paged() (t dtype.Type, bytes int)
	// Sees is how many tokens a token sees, itself included; 0: all. Pages behind them are released.
	Sees() int
	// Recurrent is rows and columns of the tensors of its backend.Recurrent, in their order,
	// with inputs input rows beyond those that the convolution needs, and space for
	// drafts drafts.
	Recurrent(inputs, drafts int) [5][2]int
}

// KV is the keys and values of every token.
type KV struct {
	Type       dtype.Type // F32, F16, I8 or I4
	Heads      int
	Key, Value int // numbers per head
	Window     int // as Layer.Sees
}

// Latent is one row of every token from which the keys and values of all heads are read.
type Latent struct {
	Type   dtype.Type // F32, F16, I8 or I4
	Width  int        // numbers that are keys and values
	Rotary int        // numbers after them that are rotated, and keys only
	Window int        // as Layer.Sees
}

// Delta is the matrices of a Gated DeltaNet layer, and the tail of its convolution.
type Delta struct {
	KeyHeads, ValueHeads int
	KeyDim, ValueDim     int
	Kernel               int // taps of the convolution
}

// Paged is keys, then values.
func (k KV) Paged() (t dtype.Type, bytes int) {
	return k.Type, backend.KeyBytes(k.Type, k.Heads, k.Key) + backend.ValueBytes(k.Type, k.Heads, k.Value)
}

// Sees is the window.
func (k KV) Sees() int { return k.Window }

// Recurrent is nothing.
func (KV) Recurrent(int, int) (none [5][2]int) { return none }

// Paged is the two parts of the rows, one after the other: in I8 each has its scales.
func (k Latent) Paged() (t dtype.Type, bytes int) {
	return k.Type, backend.LatentBytes(k.Type, k.Width) + backend.LatentBytes(k.Type, k.Rotary)
}

// Sees is the window.
func (k Latent) Sees() int { return k.Window }

// Recurrent is nothing.
func (Latent) Recurrent(int, int) (none [5][2]int) { return none }

// Paged is nothing.
func (Delta) Paged() (dtype.Type, int) { return dtype.Invalid, 0 }

// Sees is everything.
func (Delta) Sees() int { return 0 }

// Recurrent has the shapes of backend.Recurrent.
func (d Delta) Recurrent(inputs, drafts int) [5][2]int {
	keys, values := d.KeyHeads*d.KeyDim, d.ValueHeads*d.ValueDim
	return [5][2]int{
		{d.ValueHeads * d.KeyDim, d.ValueDim},
		{d.Kernel - 1 + inputs, 2*keys + values},
		{drafts, keys},
		{drafts, values},
		{drafts, d.ValueHeads},
	}
}

// Typed is the layout with pages whose numbers have type t.
func (l Layout) Typed(t dtype.Type) Layout {
	l.Layers = slices.Clone(l.Layers)
	for i, x := range l.Layers {
		switch x := x.(type) {
		case KV:
			x.Type = t
			l.Layers[i] = x
		case Latent:
			x.Type = t
			l.Layers[i] = x
		}
	}
	return l
}

// Equal reports whether states of both layouts can take each other's place.
func (l Layout) Equal(o Layout) bool {
	return l.MaxDrafts == o.MaxDrafts && l.Head == o.Head && slices.Equal(l.Layers, o.Layers)
}

// Empty reports whether a state has no memory at all.
func (l Layout) Empty() bool {
	return !l.Paged() && len(l.Windows()) == 0 && !slices.ContainsFunc(l.Layers, recurs)
}

// Paged reports whether a state has pages that stay, that is, memory that grows with its length.
func (l Layout) Paged() bool { return l.PageBytes() > 0 }

// Windows are the distinct windows of the layers, in the order of layers. Each has pages of its own.
func (l Layout) Windows() (list []int) {
	for _, x := range l.Layers {
		if x != nil && x.Sees() > 0 && !slices.Contains(list, x.Sees()) {
			list = append(list, x.Sees())
		}
	}
	return list
}

// recurs reports whether a layer has a backend.Recurrent.
func recurs(x Layer) bool { return x != nil && x.Recurrent(0, 0) != [5][2]int{} }

// Places is the offset of each layer's memory in the sequences that State.Seq describes.
func (l Layout) Places() []backend.Place {
	list := make([]backend.Place, len(l.Layers))
	windows := append([]int{0}, l.Windows()...)
	pages, delta := make([]int, len(windows)), 0
	for i, x := range l.Layers {
		if x == nil {
			continue
		}
		t, bytes := x.Paged()
		w := slices.Index(windows, x.Sees())
		list[i] = backend.Place{Type: t, Window: w, Page: pages[w], Delta: delta}
		pages[w] += bytes
		if recurs(x) {
			delta++
		}
	}
	return list
}

// page is the shape of a page of a window: PageTokens positions of every layer with that window, one after another. The window
// 0 is that of layers that see everything.
func (l Layout) page(window int) shape {
	n := 0
	for _, cols := range l.pageCols(window) {
		n += cols
	}
	return shape{page: true, window: window, head: l.Head, t: dtype.I8, rows: 1, cols: n}
}

// pages are the shapes of the pages of all tables in the order of Places.
func (l Layout) pages() []shape {
	list := []shape{l.page(0)}
	for _, w := range l.Windows() {
		list = append(list, l.page(w))
	}
	return list
}

// parts are the parts of the model that the layers belong to, for a split device.
func (l Layout) parts() []backend.Part {
	list := make([]backend.Part, len(l.Layers))
	for i := range list {
		list[i] = backend.Part{Kind: backend.LayerPart, Layer: i}
		if l.Head {
			list[i] = backend.Part{Kind: backend.HeadPart}
		}
	}
	return list
}

// pageCols is the layers' sizes in a page of a window.
func (l Layout) pageCols(window int) []int {
	list := make([]int, len(l.Layers))
	for i, x := range l.Layers {
		if x != nil && x.Sees() == window {
			_, list[i] = x.Paged()
		}
	}
	return list
}

// PageBytes is the memory of backend.PageTokens positions that stay.
func (l Layout) PageBytes() int64 { return l.page(0).bytes() }

// FirstWindow is the first page of windows that a token behind n others sees.
func (l Layout) FirstWindow(n int) int {
	first := math.MaxInt
	for _, p := range l.pages()[1:] {
		first = min(first, p.first(n))
	}
	return first
}

// WindowPageBytes is the memory of a page of each window.
func (l Layout) WindowPageBytes() (n int64) {
	for _, p := range l.pages()[1:] {
		n += p.bytes()
	}
	return n
}

// WindowBytes is the maximum memory of the pages of windows in a Snapshot.
func (l Layout) WindowBytes() (n int64) {
	for _, p := range l.pages()[1:] {
		n += int64(p.span(p.window-1)) * p.bytes()
	}
	return n
}

// Boundary is the distance, in tokens, of the boundaries that every prompt has in the prefix cache. Between two of them windows, whose
// pages a boundary stores again, take as much memory as the other pages at most, unless texts would share too few tokens.
func (l Layout) Boundary() int {
	const least, most = 1024, 8192
	per := max(l.PageBytes()*least/backend.PageTokens, 1)
	return int(min(most, max(1, (l.WindowBytes()+per-1)/per)*least))
}

// RecurrentBytes is the memory of a sequence that does not depend on its length.
func (l Layout) RecurrentBytes() int64 { return l.full(l.MaxDrafts).shape().bytes() }

// deeper is how many times MaxDrafts the drafts are that a deepened state has space for.
const deeper = 4

// DeepDrafts is the maximum number of drafts in one call of a deepened state.
func (l Layout) DeepDrafts() int { return deeper * l.MaxDrafts }

// DeepBytes is RecurrentBytes of a deepened state.
func (l Layout) DeepBytes() int64 { return l.full(l.DeepDrafts()).shape().bytes() }

// recurrent is the state of recurrent layers: one piece of memory with the tensors of
// backend.Recurrent one after another, layer by layer.
type recurrent struct {
	layers []int       // their numbers
	sizes  [][5][2]int // rows and columns of the tensors of each
	of     Layout
}

// full is the state of a State with space for a number of drafts.
func (l Layout) full(drafts int) recurrent { return l.recurrent(drafts, drafts) }

// copied is the state of a Snapshot with kept drafts to replay: the input rows that are still
// needed, and the drafts' updates.
func (l Layout) copied(kept int) recurrent { return l.recurrent(0, kept) }

func (l Layout) recurrent(inputs, drafts int) recurrent {
	list := recurrent{of: l}
	for i, x := range l.Layers {
		if recurs(x) {
			list.layers, list.sizes = append(list.layers, i), append(list.sizes, x.Recurrent(inputs, drafts))
		}
	}
	return list
}

// empty reports whether there are no such layers.
func (r recurrent) empty() bool { return len(r.sizes) == 0 }

// cols is the layers' sizes in the memory.
func (r recurrent) cols() []int {
	list := make([]int, len(r.of.Layers))
	for i, parts := range r.sizes {
		list[r.layers[i]] = numbers(parts)
	}
	return list
}

// line is the numbers of a cache line, at which every tensor begins.
const line = 16

// lines is the size of a tensor with padding.
func lines(rows, cols int) int { return (rows*cols + line - 1) / line * line }

// numbers is the size of a layer's tensors.
func numbers(parts [5][2]int) int {
	n := 0
	for _, p := range parts {
		n += lines(p[0], p[1])
	}
	return n
}

// shape is one row with the tensors of all layers.
func (r recurrent) shape() shape {
	n := 0
	for _, parts := range r.sizes {
		n += numbers(parts)
	}
	return shape{head: r.of.Head, t: dtype.F32, rows: 1, cols: n}
}

// carve finds the tensors in their memory.
func (r recurrent) carve(t backend.Tensor) []backend.Recurrent {
	list := make([]backend.Recurrent, len(r.sizes))
	at := t.Offset
	for i := range list {
		for j, part := range list[i].Tensors() {
			rows, cols := r.sizes[i][j][0], r.sizes[i][j][1]
			*part = backend.Tensor{Type: t.Type, Rows: rows, Cols: cols, Stride: cols, Offset: at, Mem: t.Mem}
			at += lines(rows, cols)
		}
	}
	return list
}

package state

import (
	"sort"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Need is the maximum memory of one sequence: everything that it ever takes from the pool,
// so that a budget of Bytes is enough for it. The prefix cache frees its memory
// before a sequence lacks it and does not count. Nor does the memory of State.Deepen: a sequence
// without it gets shorter drafts.
type Need struct {
	Target Layout      // of the model
	Drafts []DraftNeed // of its drafters with a state on the device
}

// DraftNeed is what a drafter needs for a sequence.
type DraftNeed struct {
	Layout
	Ahead int // tokens beyond the text that the state has while it drafts
	Rows  int // rows of the model that may wait for the drafter
	Width int // numbers of such a row
}

// Bytes is the memory of a state with space for a number of tokens.
func (l Layout) Bytes(tokens int) int64 {
	return l.RecurrentBytes() + int64(l.pages(tokens))*l.PageBytes()
}

// LayerBytes is each layer's part of Bytes.
func (l Layout) LayerBytes(tokens int) []int64 {
	list := make([]int64, len(l.Layers))
	pages := int64(l.pages(tokens))
	for i, n := range l.pageCols() {
		list[i] = pages * int64(n)
	}
	for i, n := range l.full(l.MaxDrafts).cols() {
		list[i] += int64(n) * int64(dtype.F32.Size())
	}
	return list
}

// Bytes is the memory of a sequence of a number of tokens.
func (n *Need) Bytes(tokens int) int64 {
	return n.Target.Bytes(tokens) + n.DraftBytes(tokens)
}

// Budget is the memory of some sequences of a number of tokens, of which one may deepen its state.
func (n *Need) Budget(sequences, tokens int) int64 {
	return int64(sequences)*n.Bytes(tokens) + n.Target.DeepBytes() - n.Target.RecurrentBytes()
}

// DraftBytes is the drafters' part of Bytes.
func (n *Need) DraftBytes(tokens int) (b int64) {
	for _, d := range n.Drafts {
		b += d.Bytes(tokens+d.Ahead) + rowsShape(dtype.F32, d.Rows, d.Width).bytes()
	}
	return b
}

// Layouts are those of the model and of the drafters.
func (n *Need) Layouts() []Layout {
	list := []Layout{n.Target}
	for _, d := range n.Drafts {
		list = append(list, d.Layout)
	}
	return list
}

// Tokens is the length of the longest sequence, up to limit, that needs no more than bytes; 0
// if there is none.
func (n *Need) Tokens(bytes int64, limit int) int {
	return sort.Search(limit, func(i int) bool { return n.Bytes(i+1) > bytes })
}

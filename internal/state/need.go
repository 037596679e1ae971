package state

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Need is the maximum memory of one sequence: everything that it ever takes from the pool,
// so that a budget of Bytes is enough for it. The prefix cache frees its memory
// before a sequence lacks it and does not count. Nor does the memory of State.Deepen: a sequence
// without it gets shorter drafts.
type Need struct {
	Target Layout // of the model
	Draft  Layout // of its drafter; zero: there is none, or it needs no state on the device
	Ahead  int    // tokens beyond the text that the drafter's state has while it drafts
	Rows   int    // hidden rows that may wait for the drafter
	Width  int    // numbers of such a row
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
	b := n.Target.Bytes(tokens)
	if !n.Draft.Empty() {
		b += n.DraftBytes(tokens)
	}
	return b
}

// Budget is the memory of some sequences of a number of tokens, of which one may deepen its state.
func (n *Need) Budget(sequences, tokens int) int64 {
	return int64(sequences)*n.Bytes(tokens) + n.Target.DeepBytes() - n.Target.RecurrentBytes()
}

// DraftBytes is the drafter's part of Bytes.
func (n *Need) DraftBytes(tokens int) int64 {
	return n.Draft.Bytes(tokens+n.Ahead) + rowsShape(dtype.F32, n.Rows, n.Width).bytes()
}

// Tokens is the length of the longest sequence, up to limit, that needs no more than bytes; 0
// if there is none.
func (n *Need) Tokens(bytes int64, limit int) int {
	target, draft := n.Target.PageBytes(), int64(0)
	if !n.Draft.Empty() {
		draft = n.Draft.PageBytes()
	}
	free := bytes - n.Bytes(-n.Ahead) // without any page
	switch {
	case free < 0:
		return 0
	case target+draft == 0:
		return limit
	}
	// With k pages of both the text may be as long as the drafter's pages allow, which also store
	// the tokens ahead; with memory for one more target page, as long as the target's allow.
	k := min(free/(target+draft), math.MaxInt32) // no overflow for any budget
	tokens := k * backend.PageTokens
	if free-k*(target+draft) < draft {
		tokens -= int64(n.Ahead)
	}
	return int(min(max(tokens, 0), int64(limit)))
}

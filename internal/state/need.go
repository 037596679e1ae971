package state

import (
	"cmp"
	"sort"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Need is the maximum memory of one sequence: everything that it ever takes from the pool,
// so that a budget of Bytes is enough for it. The prefix cache frees its memory
// before a sequence lacks it and does not count. Nor does the memory of State.Deepen: a sequence
// without it gets shorter drafts.
type Need struct {
	Target Layout      // of the model
	Drafts []DraftNeed // of its drafters with a state on the device
	Round  int         // maximum number of tokens of a call; 0: RoundTokens
}

// RoundTokens is how many tokens a call feeds at most by default.
const RoundTokens = 512

// DraftNeed is what a drafter needs for a sequence.
type DraftNeed struct {
	Layout
	Ahead int // tokens beyond the text that the state has while it drafts
	Rows  int // rows of the model that may wait for the drafter
	Width int // numbers of such a row
}

// most is how many pages a table has at most in a sequence of a number of tokens that is fed in calls of up to round tokens.
func (s shape) most(tokens, round int) int64 {
	n := s.pages(tokens)
	if s.window > 0 {
		n = min(n, s.span(s.window-1+truncated+round))
	}
	return int64(n)
}

// Bytes is the maximum memory of a state of a number of tokens that are fed in calls of up to RoundTokens.
func (l Layout) Bytes(tokens int) int64 { return l.bytes(tokens, RoundTokens) }

func (l Layout) bytes(tokens, round int) int64 {
	n := l.RecurrentBytes()
	for _, p := range l.pages() {
		n += p.most(tokens, round) * p.bytes()
	}
	return n
}

// LayerBytes is each layer's part of Bytes.
func (l Layout) LayerBytes(tokens int) []int64 {
	list := make([]int64, len(l.Layers))
	for _, p := range l.pages() {
		for i, n := range l.pageCols(p.window) {
			list[i] += p.most(tokens, RoundTokens) * int64(n)
		}
	}
	for i, n := range l.full(l.MaxDrafts).cols() {
		list[i] += int64(n) * int64(dtype.F32.Size())
	}
	return list
}

// Bytes is the memory of a sequence of a number of tokens.
func (n *Need) Bytes(tokens int) int64 {
	return n.Target.bytes(tokens, n.round()) + n.DraftBytes(tokens)
}

func (n *Need) round() int { return cmp.Or(n.Round, RoundTokens) }

// Budget is the memory of some sequences of a number of tokens, of which one may deepen its state.
func (n *Need) Budget(sequences, tokens int) int64 {
	return int64(sequences)*n.Bytes(tokens) + n.Target.DeepBytes() - n.Target.RecurrentBytes()
}

// DraftBytes is the drafters' part of Bytes.
func (n *Need) DraftBytes(tokens int) (b int64) {
	for _, d := range n.Drafts {
		b += d.bytes(tokens+d.Ahead, n.round()+d.Rows+d.Ahead) + rowsShape(dtype.F32, d.Rows, d.Width).bytes()
	}
	return b
}

// FreeMemory is about how many bytes of sequences of a number of tokens a device has memory for.
func (n *Need) FreeMemory(b backend.Backend, tokens int) int64 {
	layouts := []Layout{n.Target}
	for _, d := range n.Drafts {
		layouts = append(layouts, d.Layout)
	}
	var parts []backend.Part
	var cols []int
	for _, l := range layouts {
		parts = append(parts, l.parts()...)
		for _, bytes := range l.LayerBytes(tokens) {
			cols = append(cols, int(bytes))
		}
	}
	return backend.FreeParts(b, parts, cols)
}

// Tokens is the length of the longest sequence, up to limit, that needs no more than bytes; 0
// if there is none.
func (n *Need) Tokens(bytes int64, limit int) int {
	return sort.Search(limit, func(i int) bool { return n.Bytes(i+1) > bytes })
}

package state

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Need is what one sequence takes of a pool at most: everything that is ever asked of the
// pool on its behalf, so that a budget of Bytes is enough for one of so many tokens. What
// the prefix cache holds is given up before a sequence lacks it and does not count.
type Need struct {
	Target Layout // of the network
	Draft  Layout // of its drafter; zero: there is none, or it needs no memory here
	Ahead  int    // tokens beyond those of the text that the drafter remembers while it drafts
	Rows   int    // hidden rows that may wait for the drafter to learn them
	Width  int    // numbers of such a row
}

// Bytes is the memory of a state that has room for so many tokens.
func (l *Layout) Bytes(tokens int) int64 {
	return l.RecurrentBytes() + int64(l.pages(tokens))*l.PageBytes()
}

// Bytes is the memory of a sequence of so many tokens.
func (n *Need) Bytes(tokens int) int64 {
	b := n.Target.Bytes(tokens)
	if n.Draft != (Layout{}) {
		b += n.DraftBytes(tokens)
	}
	return b
}

// DraftBytes is the drafter's part of Bytes.
func (n *Need) DraftBytes(tokens int) int64 {
	return n.Draft.Bytes(tokens+n.Ahead) + rowsShape(dtype.F32, n.Rows, n.Width).bytes()
}

// Tokens is the length of the longest sequence that needs no more than so many bytes, at
// most most; 0 if there is none.
func (n *Need) Tokens(bytes int64, most int) int {
	target, draft := n.Target.PageBytes(), int64(0)
	if n.Draft != (Layout{}) {
		draft = n.Draft.PageBytes()
	}
	room := bytes - n.Bytes(-n.Ahead) // without any page
	switch {
	case room < 0:
		return 0
	case target+draft == 0:
		return most
	}
	// With k pages of both the text may be as long as fits the drafter's, which also hold
	// what is ahead; where memory is left for one more of those, as long as fits the target's.
	k := min(room/(target+draft), math.MaxInt32/backend.PageTokens)
	tokens := k * backend.PageTokens
	if draft > 0 && room-k*(target+draft) < draft {
		tokens -= int64(n.Ahead)
	}
	return int(min(max(tokens, 0), int64(most)))
}

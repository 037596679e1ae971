package spec

import "github.com/foretoken/foretoken/internal/state"

// Backlog is how many hidden rows of a sequence may wait for its drafter to learn them. While
// nothing is guessed for it nobody needs them, and to learn so many at once takes little
// longer than to learn one.
const Backlog = 32

// Need is what a sequence takes of a pool: the network's memory, whose hidden rows have that
// width, and that of its drafter, if it has one. A guess that the limit of tokens would cut
// off is not made, so that only the drafter looks beyond it.
func Need(target, draft state.Layout, width int) state.Need {
	n := state.Need{Target: target, Draft: draft}
	if draft != (state.Layout{}) {
		n.Ahead, n.Rows, n.Width = MaxDepth, Backlog, width
	}
	return n
}

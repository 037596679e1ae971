package spec

import "github.com/foretoken/foretoken/internal/state"

// Backlog is the maximum number of hidden rows of a sequence that wait for its drafter. A head that has not drafted for
// long begins again with the newer half of them, at least.
const Backlog = 32

// Need is what a sequence takes of a pool: the state of the model, and that of its drafter, if it has one, which
// reads rows of that width. A draft that the limit of tokens would cut
// off is not made, so that only the drafter's state goes beyond it.
func Need(target, draft state.Layout, width int) state.Need {
	n := state.Need{Target: target, Draft: draft}
	if !draft.Empty() {
		n.Ahead, n.Rows, n.Width = MaxDepth, Backlog, width
	}
	return n
}

package spec

import "github.com/foretoken/foretoken/internal/state"

// Need is what a sequence takes of a pool: the state of the model, and that of its drafter, if
// it has one. A draft that the limit of tokens would cut off is not made, so that only the
// drafter's state goes beyond it.
func Need(target, draft state.Layout) state.Need {
	n := state.Need{Target: target, Draft: draft}
	if draft != (state.Layout{}) {
		n.Ahead = MaxDepth
	}
	return n
}

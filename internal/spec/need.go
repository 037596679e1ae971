package spec

import "github.com/foretoken/foretoken/internal/state"

// Backlog is the maximum number of rows of a sequence that wait for a drafter. A drafter that has not drafted for
// long begins again with the newer half of them, at least.
const Backlog = 32

// Need is what a drafter with a layout takes of a pool for a sequence, if it reads rows of that width. A draft that the limit of
// tokens would cut off is not made, so that only the drafter's state goes beyond it.
func Need(l state.Layout, width int) state.DraftNeed {
	return state.DraftNeed{Layout: l, Ahead: Ahead(l), Rows: Backlog, Width: width}
}

// Ahead is how many tokens beyond the text the state of a drafter has while it drafts.
func Ahead(l state.Layout) int { return max(l.MaxDrafts, MaxDepth) }

// Needs is what a sequence takes of a pool: the state of the model, whose rows have that width, and those of its drafters. d may be
// nil.
func Needs(target state.Layout, d Drafter, width int) state.Need {
	n := state.Need{Target: target}
	for _, part := range Parts(d) {
		if l := part.Layout(); !l.Empty() {
			n.Drafts = append(n.Drafts, Need(l, width*max(len(TapsOf(part)), 1)))
		}
	}
	return n
}

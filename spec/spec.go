// Package spec is speculative decoding: a drafter guesses the next tokens, the target
// network checks all guesses in one pass, and what was guessed wrong is taken back. It
// deals in tokens, distributions and memories; networks and schedules are elsewhere.
package spec

import (
	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/sample"
	"github.com/foretoken/foretoken/state"
)

// Drafter guesses tokens for a batch of sequences. It may be wrong; the target is exact
// whatever it says.
type Drafter interface {
	// Layout is the memory it needs per sequence, empty for one that remembers nothing.
	Layout() state.Layout
	// Draft first learns what is new in each run, then guesses. There is one draft per run,
	// valid until the next call.
	Draft(batch []Run) ([]Draft, error)
}

// Run is what happened to one sequence since the drafter saw it last.
type Run struct {
	State   *state.State    // the drafter's memory of the sequence
	Text    []int32         // all committed tokens; the last Hidden.Rows of them follow Hidden's rows
	Hidden  backend.Tensor  // the target's hidden rows that are new
	Depth   int             // how many tokens to guess; 0: only learn
	Sampler *sample.Sampler // the request's taste, at the position after Text
}

// Draft is a guess: tokens that may follow the text.
type Draft struct {
	Tokens []int32
	Dists  []sample.Dist // what each token was drawn from; nil if nothing was drawn
}

// Verify walks along a draft with the target's logits, of which there is one row more than
// there are guesses, and returns how many guesses hold and the token after them.
//
// Every token is the target's own draw, with the noise of its position; a guess holds if
// it is that token. So the text is the one that decoding without guesses gives, at every
// temperature. A drafter that draws its guesses with the same noise agrees more often than
// one that names its favourite.
//
// next is -1 if the logits left nothing to draw from.
func Verify(s *sample.Sampler, draft []int32, logits [][]float32) (held int, next int32) {
	for i, guess := range draft {
		next = s.Draw(s.Dist(logits[i], draft[:i]))
		if next != guess {
			return i, next
		}
	}
	n := len(draft)
	return n, s.Draw(s.Dist(logits[n], draft))
}

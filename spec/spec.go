// Package spec is speculative decoding: a drafter guesses the next tokens, the target
// network checks all guesses in one pass, and what was guessed wrong is taken back. It
// deals in tokens, distributions and memories; networks and schedules are elsewhere.
package spec

import (
	"fmt"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/sample"
	"github.com/foretoken/foretoken/state"
)

// MaxDepth is the most tokens that are guessed at once.
const MaxDepth = 8

// Drafter guesses tokens for a batch of sequences. It may be wrong; the target is exact
// whatever it says.
type Drafter interface {
	// Name is what a user calls it.
	Name() string
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
	Depth   int             // most tokens to guess; 0: only learn
	Sampler *sample.Sampler // the request's taste, at the position after Text
	Dists   bool            // the draft's distributions are needed: the ratio rule asks for them
}

// Draft is a guess: tokens that may follow the text.
type Draft struct {
	Tokens []int32
	// Dists are what the tokens were drawn from, if that was asked for. A drafter that does
	// not draw leaves it nil; its tokens are then taken as certain.
	Dists []sample.Dist
}

// Rule says which guesses are accepted.
type Rule uint8

const (
	// Exact accepts a guess if it is the token that the target draws itself with the noise
	// of that position. The text is the one that decoding without guesses gives, at every
	// temperature, and a drafter that draws with the same noise agrees with the target more
	// often than one that names its favourite.
	Exact Rule = iota
	// Ratio accepts a guess x with probability min(1, p(x)/q(x)) and draws from what q left
	// of p at the first refusal (Leviathan, Kalman and Matias, 2023, algorithm 1). Texts have
	// the target's distribution, but are not those that decoding without guesses gives.
	Ratio
)

// ParseRule returns the rule that a user names.
func ParseRule(name string) (Rule, error) {
	for _, r := range []Rule{Exact, Ratio} {
		if r.String() == name {
			return r, nil
		}
	}
	return Exact, fmt.Errorf("spec: no acceptance rule %q, want exact or ratio", name)
}

// String is what a user calls the rule.
func (r Rule) String() string {
	if r == Ratio {
		return "ratio"
	}
	return "exact"
}

// Verify walks along a draft with the target's logits, of which there is one row more than
// there are guesses, and returns how many guesses hold and the token after them. next is -1
// if the logits left nothing to draw from.
func (r Rule) Verify(s *sample.Sampler, d Draft, logits [][]float32) (held int, next int32) {
	for i, guess := range d.Tokens {
		p := s.Dist(logits[i], d.Tokens[:i])
		if r == Exact {
			if next = s.Draw(p); next != guess {
				return i, next
			}
			continue
		}
		q := s.Point(guess, i)
		if d.Dists != nil {
			q = d.Dists[i]
		}
		if !s.Coin(p, p.Prob(guess)/q.Prob(guess)) {
			return i, s.Draw(p.Minus(q))
		}
	}
	n := len(d.Tokens)
	return n, s.Draw(s.Dist(logits[n], d.Tokens))
}

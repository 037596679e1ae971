// Package spec is speculative decoding: a drafter guesses the next tokens, the target
// network checks all guesses in one pass, and what was guessed wrong is taken back. It
// deals in tokens, distributions and memories; networks and schedules are elsewhere.
package spec

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Drafter guesses tokens for a batch of sequences. It may be wrong; the target is exact
// whatever it says.
type Drafter interface {
	// Name is what a user calls it.
	Name() string
	// Layout is the memory it needs per sequence, empty for one that needs none of the
	// device's.
	Layout() state.Layout
	// Draft first learns what is new in each run, then guesses. There is one draft per run,
	// valid until the next call.
	Draft(batch []Run) ([]Draft, error)
}

// Planner is a drafter that has something to say before it is known how many guesses are
// wanted: that they would come from elsewhere than a network, or that there are none.
type Planner interface {
	Drafter
	// Plan sets the Offers of each run. Draft follows, with the same runs.
	Plan(batch []Run)
}

// Shortlister is a drafter that can guess among the most frequent tokens only, and those of
// the text, where the whole vocabulary costs more than the rare tokens are worth.
type VocabLimiter interface {
	Drafter
	// Sizes are the numbers of frequent tokens to choose among, ascending; none if the
	// choice was made already.
	VocabSizes() []int
	// Shorten makes the next calls guess among that many.
	LimitVocab(size int)
}

// Run is what happened to one sequence since the drafter saw it last.
type Run struct {
	State *state.State // the drafter's memory of the sequence on the device
	// Notes are what the drafter keeps of the sequence on the host: nil at first, then
	// whatever it likes, dropped when the sequence ends. They may be dropped earlier too; a
	// drafter must be able to make them again from Text.
	HostState *any
	Text      []int32         // all committed tokens; the last Hidden.Rows of them follow Hidden's rows
	Hidden    backend.Tensor  // the target's hidden rows that are new
	Depth     int             // most tokens to guess; 0: only learn
	Sources   Sources         // where guesses could come from
	Source    Source          // where they shall come from: one of Offers
	Sampler   *sample.Sampler // the request's taste, at the position after Text
	Dists     bool            // the draft's distributions are needed: the ratio rule asks for them
}

// Plan sets the Offers of each run. A drafter that plans nothing computes its guesses.
func Plan(d Drafter, batch []Run) {
	if p, ok := d.(Planner); ok {
		p.Plan(batch)
		return
	}
	for i := range batch {
		batch[i].Sources = Computed.only()
	}
}

// Draft is a guess: tokens that may follow the text.
type Draft struct {
	Tokens []int32
	// Dists are what the tokens were drawn from, if that was asked for. A drafter that does
	// not draw leaves it empty; its tokens are then taken as certain.
	Dists []sample.Dist
	// Among is how many tokens the guesses were drawn among, 0 if they were not drawn.
	Vocab int
}

// Source is where guesses come from. Those of one source are alike in what they cost and
// in how often they hold, so each is judged by its own record.
type Source uint8

// The sources. A copy is the better the longer the text before it is the same.
const (
	Computed   Source = iota // a network: every guess costs a pass of it
	CopyOf2                  // what followed the last two tokens when they stood in the text before
	CopyOf3                  // the last three
	CopyOf4                  // four to seven
	CopyOf8                  // eight or more
	numSources = iota
)

// Copy is the source of guesses copied from where so many tokens were the same.
func Copy(match int) Source {
	switch {
	case match >= 8:
		return CopyOf8
	case match >= 4:
		return CopyOf4
	case match == 3:
		return CopyOf3
	default:
		return CopyOf2
	}
}

// Sources is a set of sources.
type Sources uint8

// With is the set and s.
func (set Sources) With(s Source) Sources { return set | s.only() }

// Has reports whether s is in the set.
func (set Sources) Has(s Source) bool { return set&s.only() != 0 }

func (s Source) only() Sources { return 1 << s }

// Rule says which guesses are accepted.
type Rule uint8

const (
	// Exact accepts a guess if it is the token that the target draws itself with the noise
	// of that position. The text is the one that decoding without guesses gives, at every
	// temperature, and a drafter that draws with the same noise agrees with the target more
	// often than one that names its favorite.
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
func (r Rule) Verify(s *sample.Sampler, d Draft, logits [][]float32) (accepted int, next int32) {
	for i, guess := range d.Tokens {
		p := s.Dist(logits[i], d.Tokens[:i])
		if r == Exact {
			if next = s.Draw(p); next != guess {
				return i, next
			}
			continue
		}
		q := s.Point(guess, i)
		if i < len(d.Dists) {
			q = d.Dists[i]
		}
		if !s.Coin(p, p.Prob(guess)/q.Prob(guess)) {
			return i, s.Draw(p.Minus(q))
		}
	}
	n := len(d.Tokens)
	return n, s.Draw(s.Dist(logits[n], d.Tokens))
}

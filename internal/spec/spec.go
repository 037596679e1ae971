// Package spec is speculative decoding: a drafter proposes the next tokens, the target model
// verifies all of them in one pass, and those after the first rejected one are rolled back.
// It deals in tokens, distributions and states; models and schedules are elsewhere.
package spec

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/cost"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/state"
)

// Drafter proposes tokens for a batch of sequences. It may be wrong: the target's text is the
// same whatever is proposed.
type Drafter interface {
	// Name is what a user calls it.
	Name() string
	// Layout is the state it needs per sequence on the device, empty for one that needs none.
	Layout() state.Layout
	// Draft first catches up with what is new in each run, then drafts. There is one draft per
	// run, valid until the next call.
	Draft(batch []Run) ([]Draft, error)
}

// Planner is a drafter that knows, before the depth is chosen, where its drafts would come from,
// or that there would be none.
type Planner interface {
	Drafter
	// Plan sets the Sources of each run. Draft follows, with the same runs.
	Plan(batch []Run)
}

// Tapper is a drafter that reads rows which are tapped between layers of the model.
type Tapper interface {
	Drafter
	// Taps are the tapped layers, as model.Tappable counts them: the rows of Run.Hidden are theirs, side by side. None: the rows
	// are those of a head.
	Taps() []int
}

// TapsOf are the taps of a drafter, nil if it reads the rows of a head or none.
func TapsOf(d Drafter) []int {
	if t, ok := d.(Tapper); ok {
		return t.Taps()
	}
	return nil
}

// VocabLimiter is a drafter whose draft vocabulary can be limited to the most frequent tokens
// and those of the text, where the whole vocabulary costs more than the rare tokens are worth.
type VocabLimiter interface {
	Drafter
	// VocabSizes are the numbers of frequent tokens to choose from, ascending; none if the
	// choice was made already.
	VocabSizes() []int
	// LimitVocab makes the next calls draft from size frequent tokens.
	LimitVocab(size int)
}

// Blocker is a drafter that computes all tokens of a draft in one step.
type Blocker interface {
	Drafter
	// Drafts is the maximum number of tokens.
	Drafts() int
}

// Rehearser is a drafter whose device can prepare for its calls: see backend.Rehearser.
type Rehearser interface {
	Drafter
	// Rehearse makes the calls that are to come for batches of up to runs sequences. hidden has as many rows as
	// are ever new in a round, and usual is how many are where no prompt is fed.
	Rehearse(p *state.Pool, hidden backend.Tensor, usual, runs int) error
}

// Run is what happened to one sequence since the drafter saw it last.
type Run struct {
	State  *state.State // the drafter's state of the sequence, on the device; nil: it needs none
	Target *state.State // the model's state of the sequence, which has fed all of Text but its last token, and more if Depth is 0
	// HostState is what the drafter keeps of the sequence on the host: nil at first, dropped when
	// the sequence ends, and maybe earlier: a drafter must be able to make it again from Text.
	HostState *any
	Text      []int32           // all committed tokens; the last Hidden.Rows of them follow Hidden's rows
	Prompt    int               // tokens of the prompt, the first of Text or all of it
	Hidden    backend.Tensor    // the target's hidden rows that are new, or its tapped rows: see Tapper
	Inputs    []backend.Input   // rows among the tokens that follow Hidden's: what stands there in place of ids
	Positions [][3]int32        // of Hidden's rows; nil: text that goes on at State.Next
	Depth     int               // maximum number of tokens to draft; 0: only catch up
	Known     int               // tokens that must follow: what is drafted begins with them, and they are fed in any case
	Sources   Sources           // where drafts could come from
	Source    Source            // where they shall come from: one of Sources
	Sampler   *sampling.Sampler // of the request, at the position after Text
	Dists     bool              // the draft's distributions are needed: the ratio rule asks for them
	// More reports whether a token after those drafted so far is worth its cost. probs are their
	// probabilities, as in Draft.Probs. A drafter that computes step by step asks before each further
	// step and ends the draft at the first false. One that drafts several tokens in one call of the
	// device may ask less often or never. nil: the draft has Depth tokens.
	More func(probs []float32) bool
}

// Plan sets the Sources of each run, for part i of a drafter. A part that is no Planner computes its drafts.
func Plan(i int, part Drafter, batch []Run) {
	if p, ok := part.(Planner); ok {
		p.Plan(batch)
		return
	}
	for j := range batch {
		batch[j].Sources = Source(i).only()
	}
}

// Draft is tokens that may follow the text.
type Draft struct {
	Tokens []int32
	// Dists are what the tokens were drawn from, if that was asked for. A drafter that does
	// not draw leaves it empty; its tokens are then taken as certain.
	Dists []sampling.Dist
	// Probs are the drafter's own probabilities of the tokens, after temperature and filters and out
	// of the draft vocabulary. Greedy draws have those of temperature 1. They predict acceptance and
	// decide about speed alone, so devices may differ in them by rounding. A drafter that does not
	// draw leaves it empty.
	Probs []float32
	// Forced tells which tokens a constraint forces, as Force sets it; a token beyond it is not.
	Forced []bool
	// Vocab is the size of the draft vocabulary, 0 if the tokens were not drawn.
	Vocab int
}

// Source is where drafts come from. Those of one source are alike in cost and in acceptance
// rate, so each is judged by its own record.
type Source uint8

// The sources. A copy is the better the longer the text before it is the same.
const (
	Computed   Source = iota // the first drafter that computes drafts
	Beside                   // the second, which competes with it
	CopyOf2                  // what followed the last two tokens when they stood in the text before
	CopyOf3                  // the last three
	CopyOf4                  // four to seven
	CopyOf8                  // eight or more
	numSources = iota
)

// Computed reports whether drafts are computed, and not copied.
func (s Source) Computed() bool { return s < cost.Drafters }

// Copy is the source of drafts copied from where the last match tokens stood before.
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

// Rule says which drafts are accepted.
type Rule uint8

const (
	// Exact accepts a draft if it is the token that the target draws itself with the noise of
	// that position. The text is that of plain decoding at every temperature, and a drafter
	// that draws with the same noise agrees with the target more often than one that drafts
	// its most likely token.
	Exact Rule = iota
	// Ratio accepts a draft x with probability min(1, p(x)/q(x)) and draws from the residual
	// max(0, p-q) at the first rejection (Leviathan, Kalman and Matias, 2023, algorithm 1).
	// Texts have the target's distribution, but are not those of plain decoding.
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
// there are drafts, and returns how many drafts are accepted and the token after them. next is
// -1 if the logits leave nothing to draw from. ok is false if more of the rows must be known.
func (r Rule) Verify(s *sampling.Sampler, d Draft, logits []sampling.Row) (accepted int, next int32, ok bool) {
	n := len(d.Tokens)
	for i, draft := range d.Tokens {
		if r == Exact {
			if next, ok = s.DrawOf(logits[i], d.Tokens[:i]); !ok || next != draft {
				return i, next, ok
			}
			continue
		}
		p, ok := s.DistOf(logits[i], d.Tokens[:i])
		if !ok {
			return 0, -1, false
		}
		q := s.Point(draft, i)
		if i < len(d.Dists) {
			q = d.Dists[i]
		}
		if !s.Coin(p, p.Prob(draft)/q.Prob(draft)) {
			return i, s.Draw(p.Minus(q)), true
		}
	}
	next, ok = s.DrawOf(logits[n], d.Tokens)
	return n, next, ok
}

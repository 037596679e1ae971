package bench

import (
	"slices"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/spec"
)

// Turn is what one turn took. Only rounds count in which all sequences of the batch took part
// and none read its prompt; the times of passes and of guessing are those of all rounds after
// the prompts.
type Turn struct {
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`

	Rounds  int     `json:"rounds"` // of sequences, after their prompts
	Drafted int     `json:"drafted"`
	Verify  float64 `json:"verify_s"`
	Draft   float64 `json:"draft_s"`
}

// rate is tokens per second.
func (t Turn) rate() float64 { return measure.Ratio(float64(t.Tokens), t.Seconds) }

// pass is the time of a pass, for each sequence in it.
func (t Turn) pass() float64 { return measure.Ratio(t.Verify, float64(t.Rounds)) }

// guess is the time of a guess.
func (t Turn) guess() float64 { return measure.Ratio(t.Draft, float64(t.Drafted)) }

// add takes in a run of so many sequences.
func (t *Turn) add(r *Run, sequences int) {
	for _, x := range r.Rounds {
		if x.Sequences == sequences && x.Prompt == 0 {
			t.Tokens += x.Tokens
			t.Seconds += x.Took.Seconds()
		}
	}
	for i := range r.Answers {
		c := &r.Answers[i].Receipt
		t.Rounds += c.Rounds - 1
		t.Drafted += c.Drafted
		t.Verify += c.Verify.Seconds()
		t.Draft += c.Draft.Seconds()
	}
}

// Cell is one depth of guessing in one setting: what was measured, and below that what
// follows from it.
type Cell struct {
	Setting
	Depth     int    `json:"depth"` // 0: plain, -1: as many guesses as pay
	Turns     []Turn `json:"turns"`
	Different int    `json:"different"` // answers that are not as they must be

	// Of all timed turns, without the rounds that end prompts. A draft token after a rejected
	// one is rejected.
	Rounds     int   `json:"rounds"`
	Drafted    int   `json:"drafted"`
	Accepted   int   `json:"accepted"`
	DraftedAt  []int `json:"drafted_by_position"`
	AcceptedAt []int `json:"accepted_by_position"`

	Rate  measure.Spread `json:"tokens_per_second"`
	Ratio measure.Spread `json:"ratio"` // to plain decoding of the same turn
	Noisy bool           `json:"noisy"` // the interval of Ratio is too wide

	Acceptance     float64   `json:"acceptance"`             // accepted over drafted
	ByPosition     []float64 `json:"acceptance_by_position"` // accepted over drafted
	TokensPerRound float64   `json:"tokens_per_round"`
	MeanDepth      float64   `json:"mean_depth"`
	Rows           float64   `json:"rows"`      // of a pass, in the mean
	Beta           float64   `json:"beta"`      // time of a pass, in plain passes
	Delta          float64   `json:"delta"`     // time of a guess, in plain passes
	Predicted      float64   `json:"predicted"` // ratio, by the cost model
}

// count takes in the guesses of a run.
func (c *Cell) count(answers []Answer) {
	for i := range answers {
		r := &answers[i].Receipt
		c.Rounds += r.Rounds - 1
		c.Drafted += r.Drafted
		c.Accepted += r.Accepted
		for j := 0; j < spec.MaxDepth && r.DraftedAt[j] > 0; j++ {
			if j == len(c.DraftedAt) {
				c.DraftedAt, c.AcceptedAt = append(c.DraftedAt, 0), append(c.AcceptedAt, 0)
			}
			c.DraftedAt[j] += r.DraftedAt[j]
			c.AcceptedAt[j] += r.AcceptedAt[j]
		}
	}
}

// settle works out what follows from the measurements of the cell and of plain decoding in
// the same setting.
func (c *Cell) settle(plain *Cell) {
	c.Rate = measure.NewSpread(rates(c.Turns))
	c.Ratio = measure.NewSpread(ratios(c.Turns, plain.Turns))
	c.Noisy = c.Ratio.Noisy()
	c.Acceptance = measure.Ratio(float64(c.Accepted), float64(c.Drafted))
	c.ByPosition = nil
	for j := range c.DraftedAt {
		c.ByPosition = append(c.ByPosition, measure.Ratio(float64(c.AcceptedAt[j]), float64(c.DraftedAt[j])))
	}
	c.TokensPerRound = 1 + measure.Ratio(float64(c.Accepted), float64(c.Rounds))
	c.MeanDepth = measure.Ratio(float64(c.Drafted), float64(c.Rounds))
	c.Rows = float64(c.Batch) * (1 + c.MeanDepth)
	beta, delta := make([]float64, len(c.Turns)), make([]float64, len(c.Turns))
	for i := range c.Turns {
		one := plain.Turns[i].pass()
		beta[i], delta[i] = measure.Ratio(c.Turns[i].pass(), one), measure.Ratio(c.Turns[i].guess(), one)
	}
	c.Beta, c.Delta = measure.Median(beta), measure.Median(delta)
	gain := measure.Gain(c.ByPosition)
	if c.Depth == AutoDepth { // not every round guessed at every position
		gain = c.TokensPerRound
	}
	c.Predicted = measure.Speedup(gain, c.Beta, c.MeanDepth*c.Delta)
}

// rates are those of turns.
func rates(turns []Turn) []float64 {
	list := make([]float64, len(turns))
	for i := range turns {
		list[i] = turns[i].rate()
	}
	return list
}

// ratios are the rates of turns over those of the same turns of plain decoding: what slows a
// machine down for a while slows down both.
func ratios(turns, plain []Turn) []float64 {
	list := make([]float64, len(turns))
	for i := range turns {
		list[i] = measure.Ratio(turns[i].rate(), plain[i].rate())
	}
	return list
}

// total adds up turns of several cells, turn by turn.
func total(cells []*Cell) []Turn {
	var sum []Turn
	for _, c := range cells {
		for i, t := range c.Turns {
			if i == len(sum) {
				sum = append(sum, Turn{})
			}
			sum[i].Tokens += t.Tokens
			sum[i].Seconds += t.Seconds
		}
	}
	return sum
}

// Track is a stretch of one text, round by round.
type Track struct {
	Depth  int    `json:"depth"`
	Rounds []Step `json:"rounds"`
}

// Step is a round of a track.
type Step struct {
	Milliseconds float64 `json:"ms"` // since the first round
	Tokens       int     `json:"tokens"`
	Drafted      int     `json:"drafted"`
	Accepted     int     `json:"accepted"`
}

// trackRounds is how many rounds of a track are kept: enough to see what happens.
const trackRounds = 48

func newTrack(depth int, rounds []engine.Round) Track {
	t, ms := Track{Depth: depth}, 0.0
	for _, r := range slices.DeleteFunc(slices.Clone(rounds), func(r engine.Round) bool { return r.Prompt > 0 }) {
		if len(t.Rounds) == trackRounds {
			break
		}
		ms += r.Took.Seconds() * 1e3
		t.Rounds = append(t.Rounds, Step{ms, r.Tokens, r.Drafted, r.Accepted})
	}
	return t
}

package bench

import (
	"slices"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/spec"
)

// Repeat is what one repetition took. Only rounds count in which all sequences of the batch
// decoded and none was in prefill; the times of passes and of drafts are those of all rounds
// after the prompts.
type Repeat struct {
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`

	Rounds  int     `json:"rounds"` // of sequences, after their prompts
	Drafted int     `json:"drafted"`
	Verify  float64 `json:"verify_s"`
	Draft   float64 `json:"draft_s"`
}

// rate is tokens per second.
func (r Repeat) rate() float64 { return measure.Ratio(float64(r.Tokens), r.Seconds) }

// pass is the time of a pass, for each sequence in it.
func (r Repeat) pass() float64 { return measure.Ratio(r.Verify, float64(r.Rounds)) }

// draft is the time of a draft token.
func (r Repeat) draft() float64 { return measure.Ratio(r.Draft, float64(r.Drafted)) }

// add adds a run of a batch of sequences.
func (r *Repeat) add(run *Run, sequences int) {
	for _, x := range run.Rounds {
		if x.Sequences == sequences && x.Prompt == 0 {
			r.Tokens += x.Tokens
			r.Seconds += x.Took.Seconds()
		}
	}
	for i := range run.Answers {
		s := &run.Answers[i].Stats
		r.Rounds += s.Rounds - 1
		r.Drafted += s.Drafted
		r.Verify += s.Verify.Seconds()
		r.Draft += s.Draft.Seconds()
	}
}

// Cell is one draft depth in one setting: what was measured, and below that what follows from
// it.
type Cell struct {
	Setting
	Depth     int      `json:"depth"` // 0: plain, -1: auto
	Repeats   []Repeat `json:"repeats"`
	Different int      `json:"different"` // answers that are not as they must be

	// Of all timed repetitions, without the rounds that end prompts. A draft token after a rejected
	// one is rejected.
	Rounds     int   `json:"rounds"`
	Drafted    int   `json:"drafted"`
	Accepted   int   `json:"accepted"`
	DraftedAt  []int `json:"drafted_by_position"`
	AcceptedAt []int `json:"accepted_by_position"`
	// Among Drafted and Accepted: copies, and drafts of the drafter that competes with the head.
	Copied         int `json:"copied"`
	CopiedAccepted int `json:"copied_accepted"`
	Beside         int `json:"beside"`
	BesideAccepted int `json:"beside_accepted"`

	Rate  measure.Spread `json:"tokens_per_second"`
	Ratio measure.Spread `json:"ratio"` // to plain decoding in the same repetition
	Noisy bool           `json:"noisy"` // the interval of Ratio is too wide

	Acceptance     float64   `json:"acceptance"`             // accepted over drafted
	ByPosition     []float64 `json:"acceptance_by_position"` // accepted over drafted
	TokensPerRound float64   `json:"tokens_per_round"`
	MeanDepth      float64   `json:"mean_depth"`
	Rows           float64   `json:"rows"`      // of a pass, in the mean
	Beta           float64   `json:"beta"`      // time of a pass, in plain passes
	Delta          float64   `json:"delta"`     // time of a draft token, in plain passes
	Predicted      float64   `json:"predicted"` // ratio, by the cost model
}

// count adds the draft tokens of a run.
func (c *Cell) count(answers []Answer) {
	for i := range answers {
		r := &answers[i].Stats
		c.Rounds += r.Rounds - 1
		c.Drafted += r.Drafted
		c.Accepted += r.Accepted
		c.Copied += r.Copied
		c.CopiedAccepted += r.CopiedAccepted
		c.Beside += r.Beside
		c.BesideAccepted += r.BesideAccepted
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
	c.Rate = measure.NewSpread(rates(c.Repeats))
	c.Ratio = measure.NewSpread(ratios(c.Repeats, plain.Repeats))
	c.Noisy = c.Ratio.Noisy()
	c.Acceptance = measure.Ratio(float64(c.Accepted), float64(c.Drafted))
	c.ByPosition = nil
	for j := range c.DraftedAt {
		c.ByPosition = append(c.ByPosition, measure.Ratio(float64(c.AcceptedAt[j]), float64(c.DraftedAt[j])))
	}
	c.TokensPerRound = 1 + measure.Ratio(float64(c.Accepted), float64(c.Rounds))
	c.MeanDepth = measure.Ratio(float64(c.Drafted), float64(c.Rounds))
	c.Rows = float64(c.Batch) * (1 + c.MeanDepth)
	beta, delta := make([]float64, len(c.Repeats)), make([]float64, len(c.Repeats))
	for i, r := range c.Repeats {
		one := plain.Repeats[i].pass()
		beta[i], delta[i] = measure.Ratio(r.pass(), one), measure.Ratio(r.draft(), one)
	}
	c.Beta, c.Delta = measure.Median(beta), measure.Median(delta)
	gain := measure.Gain(c.ByPosition)
	if c.Depth == AutoDepth { // not every round drafted at every position
		gain = c.TokensPerRound
	}
	c.Predicted = measure.Speedup(gain, c.Beta, c.MeanDepth*c.Delta)
}

// rates are those of repetitions.
func rates(repeats []Repeat) []float64 {
	list := make([]float64, len(repeats))
	for i, r := range repeats {
		list[i] = r.rate()
	}
	return list
}

// ratios are the rates of repetitions over those of plain decoding in the same repetition: what
// slows a machine down for a while slows down both.
func ratios(repeats, plain []Repeat) []float64 {
	list := make([]float64, len(repeats))
	for i, r := range repeats {
		list[i] = measure.Ratio(r.rate(), plain[i].rate())
	}
	return list
}

// total adds up the repetitions of several cells, one by one.
func total(cells []*Cell) []Repeat {
	var sum []Repeat
	for _, c := range cells {
		for i, r := range c.Repeats {
			if i == len(sum) {
				sum = append(sum, Repeat{})
			}
			sum[i].Tokens += r.Tokens
			sum[i].Seconds += r.Seconds
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

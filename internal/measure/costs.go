package measure

import (
	"context"
	"math"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Costs are what rounds take on this machine: the lower quartile of several measurements, since
// whatever else the machine does only makes them longer.
type Costs struct {
	Step float64 `json:"step_seconds"` // a pass over one token
	// Spread is the upper quartile of such passes over the lower one: 1 on a machine that does
	// nothing else.
	Spread float64      `json:"spread"`
	Beta   []float64    `json:"beta"`  // a pass over 1, 2, … rows, in steps
	Delta  []DraftCosts `json:"delta"` // of the whole vocabulary first
}

// DraftCosts are what drafting takes.
type DraftCosts struct {
	DraftVocab int       `json:"draft_vocab"` // frequent tokens in the draft vocabulary
	Cost       []float64 `json:"cost"`        // of 1, 2, … draft tokens, in steps
}

const (
	minRepeats = 3
	maxRepeats = 15
	warmUp     = 32 // tokens fed before anything is timed
)

// CostOptions say what to measure.
type CostOptions struct {
	Text     []int32 // tokens to feed, again and again
	Vocab    int     // ids that mean something
	Rows     int     // maximum rows of a pass; drafts are up to Rows-1 tokens
	Sizes    []int   // draft vocabularies
	Deadline time.Time
}

// MeasureCosts times passes by rows and, if d is not nil, drafts by depth and draft vocabulary.
// The kinds alternate, so that a disturbance meets all of them.
func MeasureCosts(ctx context.Context, m model.Model, d spec.Drafter, pool *state.Pool, o CostOptions) (*Costs, error) {
	seq, err := Open(m, d, pool, o.Vocab)
	if err != nil {
		return nil, err
	}
	defer seq.Close()
	r := &costRun{Sequence: seq, ctx: ctx, source: o.Text, text: o.Text[:1:1]}
	for range warmUp { // the caches are warm then, and the states not empty
		if _, err := r.pass(0); err != nil {
			return nil, err
		}
		if d != nil {
			if _, _, err := r.Draft(r.text, 0, 1); err != nil {
				return nil, err
			}
		}
	}
	if d == nil {
		o.Sizes = nil
	}
	passes, drafts := make([][]float64, o.Rows), make([][][]float64, len(o.Sizes))
	for i := range drafts {
		drafts[i] = make([][]float64, o.Rows-1)
	}
	for n := 0; n < maxRepeats && (n < minRepeats || time.Now().Before(o.Deadline)); n++ {
		if err := r.repeat(passes, drafts, o.Sizes); err != nil {
			return nil, err
		}
	}
	c := &Costs{Beta: rising(passes, 0.25), Spread: Quantile(passes[0], 0.75) / Quantile(passes[0], 0.25)}
	c.Step = c.Beta[0]
	scale(c.Beta, c.Step)
	for i, size := range o.Sizes {
		cost := rising(drafts[i], 0.25)
		scale(cost, c.Step)
		c.Delta = append(c.Delta, DraftCosts{DraftVocab: size, Cost: cost})
	}
	return c, nil
}

// costRun is a running MeasureCosts.
type costRun struct {
	*Sequence
	ctx    context.Context
	source []int32
	text   []int32 // tokens fed, and the next
}

// repeat measures everything once.
func (r *costRun) repeat(passes [][]float64, drafts [][][]float64, sizes []int) error {
	for n := range passes {
		took, err := r.pass(n)
		if err != nil {
			return err
		}
		passes[n] = append(passes[n], took.Seconds())
		if n+1 == len(passes) {
			break
		}
		for i, size := range sizes {
			if d, ok := r.drafter.(spec.VocabLimiter); ok {
				d.LimitVocab(size)
			}
			took, err := r.TimeDraft(r.text, 0, n+1)
			if err != nil {
				return err
			}
			drafts[i][n] = append(drafts[i][n], took.Seconds())
		}
	}
	return nil
}

// pass feeds the next token of the source with drafts tokens after it as a draft.
func (r *costRun) pass(drafts int) (time.Duration, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	at := len(r.text) - 1
	tokens := make([]int32, 2+drafts)
	for i := range tokens {
		tokens[i] = r.source[(at+i)%len(r.source)]
	}
	_, took, err := r.Pass(tokens[0], tokens[1:1+drafts]...)
	r.text = append(r.text, tokens[1])
	return took, err
}

// rising are the q-quantiles of times by kind, of which none costs less than the one before it:
// where it seems so the earlier one was disturbed. A kind without times costs what the next one
// does.
func rising(kinds [][]float64, q float64) []float64 {
	costs := make([]float64, len(kinds))
	cost := math.Inf(1)
	for i := len(kinds) - 1; i >= 0; i-- {
		if len(kinds[i]) > 0 {
			cost = min(cost, Quantile(kinds[i], q))
		}
		costs[i] = cost
	}
	return costs
}

// scale divides a list by unit.
func scale(list []float64, unit float64) {
	for i := range list {
		list[i] /= unit
	}
}

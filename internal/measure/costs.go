package measure

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Costs are the times of rounds on this machine: the lower quartile of several measurements, since
// other load of the machine only makes them longer.
type Costs struct {
	Step float64 `json:"step_seconds"` // a pass over one token
	// Spread is the upper quartile of such passes over the lower one: 1 on a machine that does
	// nothing else.
	Spread float64      `json:"spread"`
	Beta   []float64    `json:"beta"`  // a pass over 1, 2, … rows, in steps
	Delta  []DraftCosts `json:"delta"` // of the whole vocabulary first
}

// DraftCosts are the times of drafting.
type DraftCosts struct {
	DraftVocab int       `json:"draft_vocab"` // frequent tokens in the draft vocabulary
	Cost       []float64 `json:"cost"`        // of 1, 2, … draft tokens, in steps
}

const (
	minRepeats = 3
	maxRepeats = 15
	warmUp     = 32 // tokens fed before anything is timed: caches are warm then, and states not empty
)

// Costs times passes over 1 to rows rows of a text and, if there is a drafter, drafts of up to
// rows-1 tokens from each of some draft vocabularies. They alternate, so that a disturbance
// meets every kind, and are repeated until the deadline, at least minRepeats times.
func (s *Sequence) Costs(ctx context.Context, text []int32, rows int, sizes []int, deadline time.Time) (*Costs, error) {
	if s.drafter == nil {
		sizes = nil
	}
	passes, drafts := make([][]float64, rows), make([][][]float64, len(sizes))
	for i := range drafts {
		drafts[i] = make([][]float64, rows-1)
	}
	text = slices.Repeat(text, 1+(warmUp+maxRepeats*rows+rows)/len(text)) // it may be short
	at := 0
	pass := func(drafted int) (time.Duration, error) {
		at++
		_, took, err := s.Pass(text[at-1], text[at:at+drafted]...)
		return took, errors.Join(ctx.Err(), err)
	}
	for range warmUp {
		_, err := pass(0)
		if err == nil && s.drafter != nil {
			_, _, err = s.Draft(text[:at+1], 0, 1)
		}
		if err != nil {
			return nil, err
		}
	}
	for n := 0; n < maxRepeats && (n < minRepeats || time.Now().Before(deadline)); n++ {
		for r := range rows {
			took, err := pass(r)
			if err != nil {
				return nil, err
			}
			passes[r] = append(passes[r], took.Seconds())
			if r+1 == rows {
				break
			}
			for i, size := range sizes {
				took, err := s.TimeDraft(text[:at+1], 0, r+1, size)
				if err != nil {
					return nil, err
				}
				drafts[i][r] = append(drafts[i][r], took.Seconds())
			}
		}
	}
	return newCosts(passes, drafts, sizes), nil
}

// newCosts works out costs from seconds: of passes by rows, and of drafts by draft vocabulary
// and depth.
func newCosts(passes [][]float64, drafts [][][]float64, sizes []int) *Costs {
	step := rising(passes, 0.25, 1)[0]
	c := &Costs{Step: step, Beta: rising(passes, 0.25, step), Spread: Quantile(passes[0], 0.75) / Quantile(passes[0], 0.25)}
	for i, size := range sizes {
		c.Delta = append(c.Delta, DraftCosts{DraftVocab: size, Cost: rising(drafts[i], 0.25, step)})
	}
	return c
}

// rising are the q-quantiles of times by kind, in the given unit. None is less than the one
// before it: if it seems so, the earlier measurement was disturbed. A kind without times costs as
// much as the next one.
func rising(kinds [][]float64, q, unit float64) []float64 {
	costs := make([]float64, len(kinds))
	cost := math.Inf(1)
	for i := len(kinds) - 1; i >= 0; i-- {
		if len(kinds[i]) > 0 {
			cost = min(cost, Quantile(kinds[i], q)/unit)
		}
		costs[i] = cost
	}
	return costs
}

package spec

import (
	"math"

	"github.com/foretoken/foretoken/internal/cost"
)

// compete chooses the drafter of the round. A call costs about as much for one run as for all of them, so all runs have the
// same drafter. A new drafter has some rounds to itself, in which its costs are measured.
func (c *Controller) compete(offered Sources) {
	if !offered.Has(Computed) || !offered.Has(Beside) {
		return
	}
	most := math.Inf(-1)
	for s := range Source(cost.Drafters) {
		c.tried[s] *= 1 - idleRate
		gains := c.chances(new(Record), s, 0, c.most(s), 1)
		value := c.worth(s, gains[:c.most(s)], 0)
		if c.begun[s] < firstRounds {
			value = math.Inf(1)
		}
		if value > most {
			c.drafter, most = s, value
		}
	}
	c.begun[c.drafter] = min(c.begun[c.drafter]+1, firstRounds)
}

// source sets the most promising source of a run: the drafter of the round or a copy. It returns the maximum number
// of its drafts and their gains. With a fixed depth, equal requests have equal drafts, so the source
// does not depend on measurements.
func (c *Controller) source(r *Record, run *Run) (limit int, gains [MaxCopy]float64) {
	fixed, ok := r.Fixed.Fixed()
	steady := ok || run.Dists // distributions shape the text, which must not depend on measurements
	limit, best := run.Known, math.Inf(-1)
	for s := range Source(numSources) {
		if !run.Sources.Has(s) || !steady && s.Computed() && s != c.drafter && run.Sources.Has(c.drafter) {
			continue
		}
		depth := max(min(c.most(s), run.Depth), run.Known)
		if ok {
			depth = min(depth, run.Known+fixed)
		}
		g := c.chances(r, s, run.Known, depth, 0)
		value := priors[s]
		if !steady {
			value = c.worth(s, g[:depth], run.Known)
		}
		if value > best {
			run.Source, limit, best, gains = s, depth, value, g
		}
	}
	return limit, gains
}

// worth is what a run gains by drafts of a source, in tokens, as if all runs of the batch were alike.
func (c *Controller) worth(s Source, gains []float64, known int) (most float64) {
	sum, each := 0.0, 0.0
	if s.Computed() {
		first := c.Draft(int(s), 1, c.runs) * c.each
		each = c.Draft(int(s), c.steps(s, 2), 2*c.runs)*c.each - first
		sum = each - first
	}
	for j := known; j < len(gains); j++ {
		sum += gains[j] - each
		most = max(most, sum-c.rows[j+1]+c.rows[known])
	}
	return most
}

// most is the maximum number of drafts of a source.
func (c *Controller) most(s Source) int {
	switch {
	case !s.Computed():
		return MaxCopy
	case c.Blocks[s] > 0:
		return min(c.Blocks[s], MaxCopy)
	}
	return MaxDepth
}

// chances are the gains of a source's first drafts: the probability that draft j and all before it
// are accepted. That of draft j after them is the sequence's own acceptance, weighed against
// that of all sequences, weighed against that of the draft before. The first known ones are certain.
// With hope, each chance is that many standard deviations higher, if the drafter has been tried as often as of late.
func (c *Controller) chances(r *Record, s Source, known, depth int, hope float64) (gains [MaxCopy]float64) {
	const shared, own = 4, 16
	p, hoped, all := priors[s], 1.0, 1.0
	for j := range depth {
		if j < MaxDepth {
			p = r.accepted[s][j].given(c.accepted[s][j].given(p, shared), own)
			if hoped = p; hope > 0 {
				hoped += hope * math.Sqrt(p*(1-p)/(shared+c.tried[s]))
			}
		}
		if j >= known {
			all *= hoped
		}
		gains[j] = min(all, 1)
	}
	return gains
}

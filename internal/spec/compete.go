package spec

import (
	"math"

	"github.com/foretoken/foretoken/internal/cost"
)

const firstRounds = 24 // with its drafts that a drafter has before it is compared with another; one without counts a quarter

// priors are the chances of a first draft before anything is known: for copies as counted in
// program text and prose, for drafters as their makers report.
var priors = [numSources]float64{Computed: 0.7, Beside: 0.72, CopyOf2: 0.35, CopyOf3: 0.45, CopyOf4: 0.6, CopyOf8: 0.75}

// frequency counts how often something happens and forgets.
type frequency struct{ hits, n float64 }

func (f *frequency) add(hit bool, forget float64) {
	f.fade(forget)
	if f.n++; hit {
		f.hits++
	}
}

func (f *frequency) fade(forget float64) { f.hits, f.n = f.hits*(1-forget), f.n*(1-forget) }

// given is the frequency, if prior was expected of it and counts like weight observations.
func (f *frequency) given(prior, weight float64) float64 {
	return (prior*weight + f.hits) / (weight + f.n)
}

// compete chooses the drafter of the round, the one whose drafts are expected to gain more. A call costs about as much for one run as
// for all of them, so all runs have the same drafter. A new drafter has some rounds to itself, in which its costs are measured.
func (c *Controller) compete() {
	most := math.Inf(-1)
	for s := range Source(cost.Drafters) {
		if c.begun[s] < 4*firstRounds {
			if c.begun[s]++; c.idle[s] == 0 {
				c.begun[s] += 3
			}
			c.drafter = s
			return
		}
		gains := c.chances(new(Record), s, 0, c.most(s))
		if value := c.worth(s, gains[:c.most(s)], 0); value > most {
			c.drafter, most = s, value
		}
	}
}

// source is the most promising offer for a run: of the drafter of the round or a copy. With a fixed depth, equal requests have equal
// drafts, so the source does not depend on measurements.
func (c *Controller) source(run *Run, r *Record) offer {
	fixed, ok := r.Fixed.Fixed()
	steady := ok || run.Dists // distributions shape the text, which must not depend on measurements
	best, most := offer{Source: run.Source, limit: run.Known}, math.Inf(-1)
	for s := range Source(numSources) {
		if !run.Sources.Has(s) || !steady && s.Computed() && s != c.drafter && run.Sources.Has(c.drafter) {
			continue
		}
		limit := max(min(c.most(s), run.Depth), run.Known)
		if ok {
			limit = min(limit, run.Known+fixed)
		}
		gains, value := c.chances(r, s, run.Known, limit), priors[s]
		if !steady {
			value = c.worth(s, gains[:limit], run.Known)
		}
		if value > most {
			best, most = offer{s, limit, gains}, value
		}
	}
	return best
}

// worth is what a run gains by drafts of a source, in tokens, as if all runs of the batch were alike.
func (c *Controller) worth(s Source, gains []float64, known int) (most float64) {
	tokens := 0.0
	for j := known; j < len(gains); j++ {
		tokens += gains[j]
		took := c.rows[j+1] - c.rows[known]
		if s.Computed() {
			took += c.Draft(int(s), c.steps(s, j+1), c.runs*(j+1), 0) * c.price / float64(c.runs)
		}
		most = max(most, tokens-took)
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
func (c *Controller) chances(r *Record, s Source, known, depth int) (gains [MaxCopy]float64) {
	const shared, own = 4, 16 // observations that the expected frequency counts like
	p, all := priors[s], 1.0
	for j := range depth {
		if j < MaxDepth {
			p = r.accepted[s][j].given(c.accepted[s][j].given(p, shared), own)
		}
		if j >= known {
			all *= p
		}
		gains[j] = all
	}
	return gains
}

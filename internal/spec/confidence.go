package spec

import (
	"cmp"
	"slices"
)

// calibration says how often draft tokens are accepted, by position and by the head's own probability of them.
type calibration [MaxDepth][bins]frequency

const (
	bins    = 10
	trusted = 8 // drafts that the head's own probability counts like in a bin
)

// at is the bin of draft j, of which the head says p.
func (c *calibration) at(j int, p float32) *frequency {
	return &c[min(j, MaxDepth-1)][min(max(int(p*bins), 0), bins-1)]
}

// chance is that of draft j, if those before it are accepted.
func (c *calibration) chance(j int, p float32) float64 {
	if !(p >= 0 && p <= 1) {
		p = 0
	}
	return c.at(j, p).given(float64(p), trusted)
}

// selection is what the controller knows of a round in which drafts are chosen by their own chances.
type selection struct {
	calibration
	more   []func([]float32) bool // by run
	gains  [][MaxCopy]float64     // by run, on average
	least  float64                // that one more draft must be expected to gain
	asked  bool                   // the drafter asks before each step
	better float64                // decaying mean of the rate with drafts cut over the rate with all of them, minus 1
}

// ask is Run.More of run i: whether the next draft is worth its time, if its own chance is the mean.
func (c *Controller) ask(i int) func([]float32) bool {
	for len(c.more) <= i {
		i := len(c.more)
		c.more = append(c.more, func(probs []float32) bool {
			c.asked = true
			gain, n := 1.0, len(probs)
			for j, p := range probs {
				gain *= c.chance(j, p)
			}
			return n == 0 || n >= MaxDepth || gain*c.gains[i][n]/c.gains[i][n-1] > c.least
		})
	}
	return c.more[i]
}

// Trim cuts drafts that were made as Choose said, so that each row that is left is worth its time: of all drafts of the batch,
// those with the highest chances are kept. Drafts of fixed depths stay, and so do those of a trial, which measures what so many
// rows take.
func (c *Controller) Trim(batch []Run, records []*Record, drafts []Draft) {
	c.order = c.order[:0]
	var p plan
	sure := false
	for i, r := range records {
		run, d := &batch[i], &drafts[i]
		known := min(run.Known, len(d.Tokens))
		p.tokens, p.rows = p.tokens+float64(1+known), p.rows+1+known
		if r.probs = r.probs[:0]; run.Source == Computed {
			r.probs = append(r.probs, d.Probs...)
			p.deepest, p.total, p.runs = max(p.deepest, len(d.Tokens)), p.total+len(d.Tokens), p.runs+1
		}
		sure = sure || len(r.probs) > 0
		gain := 1.0
		for j := known; j < len(d.Tokens); j++ {
			if j < len(r.probs) {
				gain *= c.chance(j, r.probs[j])
			} else if gain *= c.gains[i][j]; j > 0 {
				gain /= c.gains[i][j-1]
			}
			if r.Fixed == DepthAuto {
				c.order = append(c.order, increment{i, j, gain})
			} else {
				p.tokens, p.rows = p.tokens+gain, p.rows+1
			}
		}
	}
	if !sure || len(c.order) == 0 {
		return
	}
	slices.SortStableFunc(c.order, func(a, b increment) int { return cmp.Compare(b.gain, a.gain) })
	drafted := c.Draft(p.deepest, p.total, p.runs)
	rows, best, most := p.rows, 0, p.tokens-c.price*c.Pass(p.rows)
	rate := p.tokens / (c.Pass(rows) + drafted)
	for n, inc := range c.order {
		p.tokens += inc.gain
		pass := c.Pass(rows + n + 1)
		if x := p.tokens - c.price*pass; x > most {
			best, most, rate = n+1, x, p.tokens/(pass+drafted)
		}
	}
	c.better += (rate/c.expected - 1 - c.better) * acceptRate
	if c.trying() {
		return
	}
	for _, inc := range c.order[best:] {
		r, d := records[inc.run], &drafts[inc.run]
		if inc.depth < len(d.Tokens) { // the first that is cut of the run
			d.Cut(inc.depth)
		}
		if inc.depth < len(r.probs) {
			hit := c.chance(inc.depth, r.probs[inc.depth])
			c.count(r, inc.depth, hit)
		}
	}
}

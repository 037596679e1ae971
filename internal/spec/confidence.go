package spec

import "github.com/foretoken/foretoken/internal/exactmath"

// calibration is the acceptance rate of draft tokens by their drafter's own probability of them.
type calibration [bins]frequency

const (
	bins     = 16
	binWidth = 0.75 // of log odds, so that bins end at probabilities of 0.25 % and 99.75 %
)

// bin is the bin of a probability.
func bin(p float32) int {
	x := min(max(float64(p), 1e-9), 1-1e-9)
	if x != x {
		return 0
	}
	return min(max(int(bins/2+exactmath.Log(x/(1-x))/binWidth), 0), bins-1)
}

// count counts a draft with the drafter's probability p.
func (c *calibration) count(p float32, hit bool) { c[bin(p)].add(hit, acceptRate) }

// chance is that of a draft with the drafter's probability p, if those before it are accepted, where mean is expected of all.
func (c *calibration) chance(p float32, mean float64) float64 {
	return c[bin(p)].given(mean, 4)
}

// chanceOf is the chance of draft j of run i, if those before it are accepted. A draft without a probability of its own
// has the mean chance, and a known token is certain.
func (c *Controller) chanceOf(i, j int, probs []float32) float64 {
	mean := c.offers[i].gains[j]
	if j > 0 {
		mean /= c.offers[i].gains[j-1]
	}
	if mean < 1 && j < len(probs) {
		return c.calibrations[c.offers[i].Source].chance(probs[j], mean)
	}
	return mean
}

// ask is Run.More of run i: whether the next draft is worth its time, if its own chance is the mean.
func (c *Controller) ask(i int) func([]float32) bool {
	for len(c.more) <= i {
		i := len(c.more)
		c.more = append(c.more, func(probs []float32) bool {
			s := c.offers[i].Source
			c.asked[s] = true
			gain, n := 1.0, min(len(probs), MaxDepth-1)
			for j := range n + 1 {
				gain *= c.chanceOf(i, j, probs)
			}
			return gain > c.least[s][n]
		})
	}
	return c.more[i]
}

// whole reports whether this round keeps all its drafts: in a trial, which measures a pass of that many rows. It also
// counts drafts that are usually cut.
func (c *Controller) whole() bool { return c.left >= trialRounds }

// deepen lets a head go on with drafts that are likely to be accepted, and end earlier with others. A step of the head
// is shared by the runs that were to have it anyway; another one is borne by the run that asks for it.
func (c *Controller) deepen(batch []Run, records []*Record, plain, rows int) {
	if rows == plain || c.whole() {
		return
	}
	row := (c.Pass(rows) - c.Pass(plain)) / float64(rows-plain)
	for s := range c.least {
		for j := range c.least[s] {
			runs := 0
			for i := range batch {
				if batch[i].Source == Source(s) && batch[i].Depth > j {
					runs++
				}
			}
			runs = max(runs, 1)
			c.least[s][j] = c.price * (row + (c.Draft(s, 2, 2*runs, 0)-c.Draft(s, 1, runs, 0))/float64(runs))
		}
	}
	for i, r := range records {
		run := &batch[i]
		if s := run.Source; s.Computed() && run.Depth > run.Known && r.Fixed == DepthAuto {
			run.More = c.ask(i)
			for c.asked[s] && run.Depth < c.offers[i].limit && c.offers[i].gains[run.Depth] > c.price*c.Draft(int(s), 0, 1, 0) {
				run.Depth++ // the drafter or Trim decides: a draft that is cut costs no row of a pass
			}
		}
	}
}

// Trim cuts drafts that were made as Choose said, so that each row that is left is worth its time: of all drafts of the
// batch, those with the highest chances are kept, as many as fill a pass of a size whose cost is estimated. Drafts of
// fixed depths stay.
func (c *Controller) Trim(batch []Run, records []*Record, drafts []Draft) {
	c.order = c.order[:0]
	rows, sure := len(batch), false // of the pass, without those that may be cut
	for i, r := range records {
		run, d := &batch[i], &drafts[i]
		if run.Source.Computed() && len(d.Probs) > 0 {
			r.probs, sure = append(r.probs[:0], d.Probs...), true
			c.asked[run.Source] = c.asked[run.Source] || c.Blocks[run.Source] > 0
		}
		gain := 1.0
		for j := range d.Tokens {
			if gain *= c.chanceOf(i, j, r.probs); j >= run.Known && r.Fixed == DepthAuto {
				c.order = append(c.order, increment{i, j, gain})
			} else {
				rows++
			}
		}
	}
	if c.whole() || !sure {
		return
	}
	c.sort()
	best, tokens, most := 0, 0.0, -c.price*c.Pass(rows)
	for n, inc := range c.order {
		tokens += inc.gain
		if x := tokens - c.price*c.Pass(rows+n+1); x > most && (c.Estimated(rows+n+1) || n+1 == len(c.order)) {
			best, most = n+1, x
		}
	}
	for _, inc := range c.order[best:] {
		drafts[inc.run].Cut(inc.depth)
	}
}

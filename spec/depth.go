package spec

import (
	"cmp"
	"slices"
	"time"
)

// Controller chooses how many tokens to guess, from what rounds have cost on this machine
// and from how many guesses have held. Depth 0, plain decoding, is always among the
// choices, so that guessing is never slower than not guessing for long. The choice never
// changes a text, only its speed.
//
// With depth k a round gives 1 + p1 + p1p2 + … + p1…pk tokens, where pj is the probability
// that guess j holds if those before it do, and takes the time of a pass over k+1 rows and
// of k guesses. The controller takes the depths with the most tokens per second.
type Controller struct {
	verify [maxRows + 1]average // seconds of a pass over so many rows
	draft  [maxRows + 1]average // seconds of a guess for so many sequences at once
	held   [MaxDepth]average    // how often guess j holds if those before it do
	rounds int                  // choices made

	order []increment // scratch of Choose
}

// maxRows bounds the tables of costs; rounds with more rows are counted as that many.
const maxRows = 64

// average forgets: it follows costs and texts that change.
type average struct {
	value float64
	n     int
}

// add takes in one observation. The first few count equally, later ones by rate.
func (a *average) add(x, rate float64) {
	a.n++
	a.value += (x - a.value) * max(rate, 1/float64(a.n))
}

const (
	costRate = 0.05
	holdRate = 0.01
)

// Record is what a controller knows of one sequence.
type Record struct {
	Receipt
	Fixed int // the depth to take whatever it costs; -1: the best
	held  [MaxDepth]average
	depth int // chosen last
}

// NewController returns a controller that knows nothing yet.
func NewController() *Controller { return &Controller{} }

// Verified reports a pass over so many rows, none of them of a prompt.
func (c *Controller) Verified(rows int, took time.Duration) {
	c.verify[min(rows, maxRows)].add(took.Seconds(), costRate)
}

// Drafted reports a Draft call: depths are those of its runs.
func (c *Controller) Drafted(depths []int, took time.Duration) {
	steps := max(slices.Max(depths), 1)
	for step := range steps {
		n := 0
		for _, d := range depths {
			if d > step {
				n++
			}
		}
		c.draft[min(n, maxRows)].add(took.Seconds()/float64(steps), costRate)
	}
}

// Held reports that of a sequence's guesses so many held.
func (c *Controller) Held(r *Record, guesses, held int) {
	for j := range min(guesses, held+1) {
		x := 0.0
		if j < held {
			x = 1
		}
		c.held[j].add(x, holdRate)
		r.held[j].add(x, 4*holdRate)
	}
}

// increment is one more guess for one sequence.
type increment struct {
	run  int
	gain float64 // tokens it is expected to give
}

// Choose writes the depth of each sequence, at most limits[i], to depths.
func (c *Controller) Choose(depths []int, records []*Record, limits []int) {
	c.rounds++
	c.order = c.order[:0]
	rows := 0
	for i, r := range records {
		depths[i] = 0
		limit := min(limits[i], MaxDepth)
		if r.Fixed >= 0 {
			depths[i] = min(r.Fixed, limit)
			rows += depths[i]
			continue
		}
		gain := 1.0
		for j := range limit {
			gain *= c.probability(r, j)
			c.order = append(c.order, increment{i, gain})
		}
	}
	c.best(depths, len(records), rows)
	for i, r := range records {
		if len(records) == 1 && r.Fixed < 0 {
			depths[i] = c.steady(r, depths[i], min(limits[i], MaxDepth))
		}
		r.depth = depths[i]
	}
}

// best takes increments in the order of their gain up to where tokens per second are
// highest; n sequences have rows guesses already. The gains of one sequence fall with depth,
// so the order never asks for a second guess before the first.
func (c *Controller) best(depths []int, n, rows int) {
	slices.SortStableFunc(c.order, func(a, b increment) int { return cmp.Compare(b.gain, a.gain) })
	rows += n
	tokens, steps := float64(n), 0
	rate, take := tokens/c.verifyCost(rows), 0
	for i, inc := range c.order {
		depths[inc.run]++
		tokens += inc.gain
		steps = max(steps, depths[inc.run])
		if r := tokens / (c.verifyCost(rows+i+1) + float64(steps)*c.draftCost(n)); r > rate {
			rate, take = r, i+1
		}
	}
	for _, inc := range c.order[take:] {
		depths[inc.run]--
	}
}

// steady keeps a lone sequence's depth unless another is clearly better, and now and then
// tries a neighbour, since costs that are never measured are never known to be better.
func (c *Controller) steady(r *Record, best, limit int) int {
	const every = 64
	if c.rounds%every == 0 {
		return min(max(best+1-2*(c.rounds/every%2), 0), limit)
	}
	if old := min(r.depth, limit); c.Rate(r, old) > 0.98*c.Rate(r, best) {
		return old
	}
	return best
}

// Rate is the expected tokens per second of a lone sequence at a depth.
func (c *Controller) Rate(r *Record, depth int) float64 {
	tokens, gain := 1.0, 1.0
	for j := range depth {
		gain *= c.probability(r, j)
		tokens += gain
	}
	return tokens / (c.verifyCost(1+depth) + float64(depth)*c.draftCost(1))
}

// probability is that of guess j holding if those before it do: the sequence's own
// experience, weighed against everybody's, weighed against that of the guess before.
func (c *Controller) probability(r *Record, j int) float64 {
	const weight = 8
	p := 0.7
	for i := range j + 1 {
		p = blend(p, c.held[i], weight)
	}
	return blend(p, r.held[j], weight)
}

// blend is a prior that counts like so many observations, corrected by an average.
func blend(prior float64, a average, weight float64) float64 {
	n := float64(min(a.n, 200))
	return (prior*weight + a.value*n) / (weight + n)
}

// verifyCost is the seconds of a pass over so many rows: as measured, or between the
// nearest measured ones, or a little more than the nearest below.
func (c *Controller) verifyCost(rows int) float64 { return cost(&c.verify, rows, 0.03) }

// draftCost is the seconds of a guess for so many sequences.
func (c *Controller) draftCost(n int) float64 {
	if d := cost(&c.draft, n, 0.03); d > 0 {
		return d
	}
	return 0.2 * c.verifyCost(n) // not yet measured
}

// cost reads a table of averages with gaps. Above what is known each row is taken to add
// slope, which is optimistic: what is cheap in hope gets tried, and then it is known.
func cost(table *[maxRows + 1]average, n int, slope float64) float64 {
	n = min(n, maxRows)
	lo, hi := n, n
	for lo > 0 && table[lo].n == 0 {
		lo--
	}
	for hi <= maxRows && table[hi].n == 0 {
		hi++
	}
	switch {
	case lo == 0 && hi > maxRows:
		return 0
	case lo == 0:
		return table[hi].value / (1 + slope*float64(hi-n))
	case hi > maxRows:
		return table[lo].value * (1 + slope*float64(n-lo))
	case lo == hi:
		return table[lo].value
	}
	at := float64(n-lo) / float64(hi-lo)
	return table[lo].value + at*(table[hi].value-table[lo].value)
}

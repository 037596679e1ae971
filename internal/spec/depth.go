package spec

import (
	"cmp"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/cost"
)

// Controller chooses the source and the number of drafts of each run. Under the exact rule the choice never changes a
// text, only its speed.
//
// All drafts that a batch could make are put in one order, the most likely to be accepted first. A candidate is a
// number of drafts from the beginning of that order; none is plain decoding. A candidate gives an expected number of
// tokens, which follows from acceptance counts, and takes the expected time of drafting and of a pass over its rows.
// The doubt about it is the uncertainty of that time in relation to a plain pass.
//
//   - The choice is the candidate with the most tokens per second after twice its doubt is subtracted. So a batch
//     drafts only where drafts are known to pay.
//   - A trial takes another candidate for two rounds: every fourth time plain decoding, else the one with the most
//     tokens per second after its doubt is added. All trials together are expected to cost 0.4 % of the time. A
//     trial that is expected to gain costs nothing, so it is repeated in turns with the choice until the doubt is gone.
//
// A Controller belongs to one goroutine at a time.
type Controller struct {
	cost.Model
	selection
	accepted [numSources][MaxDepth]frequency
	trials   int
	trial    int     // drafts of the running trial, or of the last
	left     int     // rounds until a trial may begin, the running trial included
	credit   float64 // rounds that trials may cost
	price    float64 // tokens that the time of one level is worth: those that the choice gives in it
	expected float64 // tokens per level of the drafts that are made

	// Scratch of Choose.
	order  []increment // all drafts that could be made, the most likely first
	rates  []float64   // tokens per level of each candidate
	limits []int       // of depth, by run
}

// Record is what a controller knows of one sequence.
type Record struct {
	Stats
	Fixed Depth // DepthAuto: the controller chooses; otherwise this one, whatever it costs

	accepted [numSources][MaxDepth]frequency
	source   Source    // chosen last
	probs    []float32 // of the last drafts, as the head has them
}

const (
	acceptRate = 0.01  // at which the counts of all sequences are forgotten, per draft
	ownRate    = 0.04  // those of a sequence, whose text changes
	idleRate   = 0.002 // those of a kind of copies, per round that could have had one

	maxHope     = 0.5   // of a doubt, where little is known
	trialShare  = 0.004 // of the time, that trials may cost
	trialRounds = 2     // a plain pass after drafts is not typical; the next one is
)

// priors are the chances of a first draft before anything is known: for copies as counted in
// program text and prose, for a head as its makers report.
var priors = [numSources]float64{Computed: 0.7, CopyOf2: 0.35, CopyOf3: 0.45, CopyOf4: 0.6, CopyOf8: 0.75}

// NewController returns a controller that knows nothing yet.
func NewController() *Controller { return &Controller{} }

// frequency counts how often something happens and forgets.
type frequency struct{ hits, n float64 }

func (f *frequency) add(hit, forget float64) {
	f.hits, f.n = f.hits*(1-forget)+hit, f.n*(1-forget)+1
}

func (f *frequency) fade(forget float64) { f.hits, f.n = f.hits*(1-forget), f.n*(1-forget) }

// given is the frequency, if prior was expected of it and counts like weight observations.
func (f *frequency) given(prior, weight float64) float64 {
	return (prior*weight + f.hits) / (weight + f.n)
}

// Report takes in what a round did for a sequence, whose drafts were made as Choose last said.
func (c *Controller) Report(r *Record, o Outcome) {
	r.add(&o, r.source)
	if o.Tokens == 0 {
		return
	}
	o.Speculative(func(j int, accepted bool) {
		hit := 0.0
		if accepted {
			hit = 1
		}
		c.count(r, j, hit)
		if j < len(r.probs) {
			c.calibration.count(j, r.probs[j], hit)
		}
	})
}

// count takes in draft j of a sequence, which was accepted with a chance of hit.
func (c *Controller) count(r *Record, j int, hit float64) {
	j = min(j, MaxDepth-1)
	c.accepted[r.source][j].add(hit, acceptRate)
	r.accepted[r.source][j].add(hit, ownRate)
}

// increment is one more draft for one run.
type increment struct {
	run, depth int     // depth is that of the drafts before it
	gain       float64 // the chance that it is accepted, and those before it
}

// plan is a round as it is expected to be.
type plan struct {
	tokens               float64
	rows                 int
	deepest, total, runs int // of a head: the greatest depth, all draft tokens, runs that it knows
}

// add adds draft j of a run.
func (p *plan) add(run *Run, j int, gain float64) {
	p.tokens += gain
	p.rows++
	if run.Source != Computed {
		return
	}
	if p.total++; j == run.Known {
		p.total += run.Known
	}
	p.deepest = max(p.deepest, j+1)
}

// rate is the tokens per level of a plan.
func (c *Controller) rate(p *plan) float64 {
	return p.tokens / (c.Pass(p.rows) + c.Draft(p.deepest, p.total, p.runs))
}

// Choose says for each run where its drafts shall come from and how many there shall be: at
// most its Depth, and none if it has no source. records[i] is that of batch[i].
//
// The tokens that a run is known to go on with count as drafts that are accepted and cost a row
// whatever is chosen; a head has to draft them again, if it is to draft what follows them.
func (c *Controller) Choose(batch []Run, records []*Record) {
	if len(batch) == 0 {
		return
	}
	c.order, c.gains, c.limits = c.order[:0], c.gains[:0], c.limits[:0]
	var base plan
	known := 0
	for i, r := range records {
		c.offer(batch, i, r, &base)
		known += batch[i].Known
	}
	if c.Measured(base.rows-known) < 4 { // what all else is compared with
		c.order = c.order[:0]
	}
	slices.SortStableFunc(c.order, func(a, b increment) int { return cmp.Compare(b.gain, a.gain) })
	best, hope := c.best(batch, base)
	n := min(c.turn(best, hope), len(c.order))
	c.expected = c.rates[n] / (1 + c.better)
	for _, inc := range c.order[:n] {
		batch[inc.run].Depth++
	}
	c.deepen(batch, records, &base, n)
	for i, r := range records {
		batch[i].settle(r)
	}
}

// offer chooses the source of a run, adds what the run has in any case to the plan, and other drafts to the order.
func (c *Controller) offer(batch []Run, i int, r *Record, p *plan) {
	run := &batch[i]
	var gains [MaxCopy]float64
	limit := c.source(r, run, len(batch), &gains)
	c.gains, c.limits = append(c.gains, gains), append(c.limits, limit)
	run.Depth = run.Known
	p.tokens, p.rows = p.tokens+float64(1+run.Known), p.rows+1+run.Known
	if run.Source == Computed {
		p.runs++
	}
	for j := run.Known; j < limit; j++ {
		if r.Fixed == DepthAuto {
			c.order = append(c.order, increment{i, j, gains[j]})
		} else {
			run.Depth++
			p.add(run, j, gains[j])
		}
	}
}

// best is the candidate with the most tokens per second if passes take as long as they may, and another one that
// has the most if passes take as little as they may; -1 if there is none.
func (c *Controller) best(batch []Run, p plan) (best, hope int) {
	plain, low := p.rows, c.rate(&p)
	c.rates = append(c.rates[:0], low)
	for n, inc := range c.order {
		p.add(&batch[inc.run], inc.depth, inc.gain)
		x := c.rate(&p) * (1 + c.better)
		c.rates = append(c.rates, x)
		if x *= max(1-2*c.Doubt(p.rows, plain), 0); x > low {
			best, low = n+1, x
		}
	}
	hope = -1
	high := 0.0
	for n, x := range c.rates {
		if x *= 1 + min(c.Doubt(plain+n, plain+best), maxHope); n != best && x > high {
			hope, high = n, x
		}
	}
	c.price = c.rates[best]
	return best, hope
}

// turn is the number of drafts of this round: the best, or those of a trial.
func (c *Controller) turn(best, hope int) int {
	c.credit = min(c.credit+trialShare, trialRounds)
	if c.left > 0 {
		if c.left--; c.left >= trialRounds {
			return c.trial
		}
		return best
	}
	if c.trials%4 == 0 && best > 0 {
		hope = 0
	}
	if hope < 0 {
		return best
	}
	loss := trialRounds * (1 - c.rates[hope]/c.rates[best])
	if loss > c.credit {
		return best
	}
	c.credit -= max(loss, 0)
	c.trials++
	c.trial, c.left = hope, 2*trialRounds-1
	return hope
}

// source sets the source of a run that promises most, as if all n runs of the batch were alike; under the ratio
// rule, by what is expected of any machine and text. It sets the gains of its drafts and returns how many there may be.
func (c *Controller) source(r *Record, run *Run, n int, gains *[MaxCopy]float64) (limit int) {
	price := max(c.price/float64(n), 1/c.Pass(n))
	row := (c.Pass(2*n) - c.Pass(n)) * price
	step := (c.Draft(1, n, n) - c.Draft(0, 0, n)) * price
	fixed, ok := r.Fixed.Fixed()
	limit, most := run.Known, math.Inf(-1)
	for s := range Source(numSources) {
		if !run.Sources.Has(s) {
			continue
		}
		depth, each := min(run.Depth, MaxCopy), row
		if s == Computed {
			depth, each = min(run.Depth, MaxDepth), row+step
		}
		if depth = max(depth, run.Known); ok {
			depth = min(depth, run.Known+fixed)
		}
		var g [MaxCopy]float64
		c.chances(r, s, run.Known, &g)
		value := 0.0
		for j := run.Known; j < depth && (ok || g[j] > each); j++ {
			value += g[j] - each
		}
		if run.Dists { // such drafts shape the text, which must not depend on what was measured
			value = priors[s]
		}
		if s != Computed {
			c.accepted[s][0].fade(idleRate)
		}
		if value > most {
			run.Source, limit, most, *gains = s, depth, value, g
		}
	}
	return limit
}

// chances sets the gains of a source's drafts: the probability that draft j and all before it
// are accepted. That of draft j after them is the sequence's own acceptance, weighed against
// that of all sequences, weighed against that of the draft before. The first known ones are certain.
func (c *Controller) chances(r *Record, s Source, known int, gains *[MaxCopy]float64) {
	const shared, own = 4, 16
	p, all := priors[s], 1.0
	for j := range gains {
		if j < MaxDepth {
			p = r.accepted[s][j].given(c.accepted[s][j].given(p, shared), own)
		}
		if j >= known {
			all *= p
		}
		gains[j] = all
	}
}

// Follow is Choose for runs that have drafts only where the depth is fixed.
func (c *Controller) Follow(batch []Run, records []*Record) {
	for i, r := range records {
		c.offer(batch, i, r, &plan{})
		batch[i].settle(r)
	}
}

// settle makes the choice for a run the last one.
func (run *Run) settle(r *Record) {
	r.source, r.probs = run.Source, r.probs[:0]
	if run.Depth <= run.Known {
		run.Depth = 0 // nothing is to be drafted
	}
}

// Rate is the expected tokens per second of a lone sequence with a number of computed drafts;
// with none, those of decoding without a drafter. It is 0 before any pass was reported.
func (c *Controller) Rate(r *Record, depth int) float64 {
	if !c.Known() {
		return 0
	}
	if depth == 0 {
		return 1 / (c.Pass(1) * c.Level())
	}
	p := plan{tokens: 1, rows: 1, runs: 1}
	var gains [MaxCopy]float64
	c.chances(r, Computed, 0, &gains)
	for j, gain := range gains[:depth] {
		p.add(&Run{}, j, gain)
	}
	return c.rate(&p) / c.Level()
}

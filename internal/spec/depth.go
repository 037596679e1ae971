package spec

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/cost"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Controller chooses the source and the number of drafts of each run. Under the exact rule the choice never changes a
// text, only its speed.
//
// If two drafters compete, one of them drafts in a round: the one with more expected tokens per second, after one standard
// deviation is added to the chances of its drafts. Copies compete with it in each run.
//
// All drafts that a batch could make then are sorted, the most likely to be accepted first. A candidate is a number of
// drafts from the beginning of that order, such that the pass has one of the sizes that the cost model estimates; none
// is plain decoding. The acceptance counts give the expected tokens of a candidate, and the cost model gives the time
// of drafting and of the pass. The doubt about a candidate is the relative standard deviation of the time of its pass
// over that of a plain pass.
//
//   - The choice is the candidate with the most tokens per second after twice its doubt is subtracted. So a batch
//     drafts only where drafts are known to pay.
//   - A trial takes another candidate for two rounds: the one that is expected to gain most by it. That is what a better candidate
//     gains in 60 rounds, on average over what two passes may show, without what the trial itself loses. Two rounds of the choice follow.
//   - After 16 rounds in which no drafts were expected to gain, only some rounds have a choice: choices then take 0.2 % of
//     the time. The drafter is not fed in the other rounds, so a trial waits for 16 rounds whose rows are kept.
//
// A Controller belongs to one goroutine at a time.
type Controller struct {
	cost.Model
	selection
	// Blocks are the maximum drafts of drafters that compute a whole draft in one step, by source; 0: a token is a step.
	Blocks [cost.Drafters]int

	accepted [numSources][MaxDepth]frequency
	drafter  Source                 // of this round
	tried    [cost.Drafters]float64 // runs that had drafts of a source, decaying
	begun    [cost.Drafters]int     // rounds of a drafter that competes, up to firstRounds
	idle     [cost.Drafters]int     // rounds since drafts of a source were chosen, of those that could have had some
	quiet    int                    // rounds since drafts were expected to gain, of those that could have had some
	rest     int                    // rounds until the next choice
	rested   bool                   // there were rounds without a choice since
	trial    int                    // drafts of the running trial, or of the last
	left     int                    // rounds until a trial may begin, with the one that runs or is to begin; negative: it may
	price    float64                // tokens that the time of one level is worth: those of the choice in that time
	runs     int                    // of the batch
	each     float64                // tokens that a run's share of one level is worth
	rows     [1 + MaxCopy]float64   // cost of a number of drafts for each run in the pass, in tokens

	// Scratch of Choose.
	order      []increment // all drafts that could be made, the most likely first
	candidates []candidate // the first is plain decoding
	limits     []int       // of depth, by run
}

// candidate is a number of drafts from the beginning of the order, the tokens of its round, and those per level.
type candidate struct {
	drafts       int
	tokens, rate float64
}

// Record is a controller's data of one sequence.
type Record struct {
	Stats
	Fixed Depth // DepthAuto: the controller chooses; otherwise this depth, at any cost

	accepted [numSources][MaxDepth]frequency
	source   Source    // chosen last
	probs    []float32 // of the last drafts, by their drafter
}

const (
	acceptRate = 0.01  // at which the counts of all sequences are forgotten, per draft
	ownRate    = 0.04  // those of a sequence, whose text changes
	idleRate   = 0.002 // those of a source, per round that could have had drafts of it: then it is tried again

	firstRounds = 24    // that a drafter has before it is compared with another
	horizon     = 60    // rounds in which a candidate that is better is used
	leastGain   = 0.2   // rounds, of a trial
	idleGain    = 3     // more if no drafts were chosen for long: the drafter has to be fed the rows that it lacks
	trialRounds = 2     // a plain pass after drafts is not typical; the next one is
	quietRounds = 16    // without drafts that are expected to gain, after which not every round has a choice
	choiceShare = 0.002 // of the time of passes, which choices may take then
	maxRest     = 16    // rounds without a choice: copies that pay begin later by these
)

// priors are the chances of a first draft before anything is known: for copies as counted in
// program text and prose, for drafters as their makers report.
var priors = [numSources]float64{Computed: 0.7, Beside: 0.72, CopyOf2: 0.35, CopyOf3: 0.45, CopyOf4: 0.6, CopyOf8: 0.75}

// NewController returns a controller without measurements.
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

// Report records the outcome of a round for a sequence, whose drafts were made as Choose last said.
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
		c.accepted[r.source][j].add(hit, acceptRate)
		r.accepted[r.source][j].add(hit, ownRate)
		if j < len(r.probs) {
			c.calibrations[r.source].count(j, r.probs[j], hit)
		}
	})
}

// increment is one more draft for one run.
type increment struct {
	run, depth int     // depth is that of the drafts before it
	gain       float64 // the chance that it is accepted, and those before it
}

// plan is the expected round.
type plan struct {
	tokens         float64
	rows           int
	deepest, total [cost.Drafters]int // of each drafter: the greatest depth, all draft tokens
}

// add adds draft j of a run.
func (p *plan) add(run *Run, j int, gain float64) {
	p.tokens += gain
	p.rows++
	s := run.Source
	if !s.Computed() {
		return
	}
	if p.total[s]++; j == run.Known {
		p.total[s] += run.Known
	}
	p.deepest[s] = max(p.deepest[s], j+1)
}

// steps is how many steps drafts of a depth take.
func (c *Controller) steps(s Source, depth int) int {
	if c.Blocks[s] > 0 {
		return min(depth, 1)
	}
	return depth
}

// ObserveDraft reports a call of the drafter of a source. depths are the numbers of tokens that it drafted for each run, 0 for runs
// without drafts of it.
func (c *Controller) ObserveDraft(s Source, depths []int, took time.Duration) {
	deepest, total := 0, 0
	for _, d := range depths {
		deepest, total = max(deepest, d), total+d
	}
	c.Model.ObserveDraft(int(s), c.steps(s, deepest), total, took)
}

// rate is the tokens per level of a plan.
func (c *Controller) rate(p *plan) float64 {
	took := c.Pass(p.rows)
	for s, depth := range p.deepest {
		took += c.Draft(s, c.steps(Source(s), depth), p.total[s])
	}
	return p.tokens / took
}

// Choose says for each run where its drafts shall come from and how many there shall be: at
// most its Depth, and none if it has no source. records[i] is that of batch[i].
//
// The known next tokens of a run count as accepted drafts and cost a row
// with every choice; a head has to draft them again, if it is to draft what follows them.
func (c *Controller) Choose(batch []Run, records []*Record) {
	c.order, c.gains, c.limits, c.from = c.order[:0], c.gains[:0], c.limits[:0], c.from[:0]
	if len(batch) == 0 {
		return
	}
	n := len(batch)
	c.runs, c.each = n, max(c.price/float64(n), 1/c.Pass(n))
	offered := Sources(0)
	for _, run := range batch {
		offered |= run.Sources
	}
	c.forget(offered)
	deepest := MaxCopy
	if offered == Computed.only() {
		deepest = c.most(Computed)
	}
	for d := range deepest + 1 {
		c.rows[d] = (c.Pass(n*(1+d)) - c.Pass(n)) * c.each
	}
	c.compete(offered)
	var base plan
	known := 0
	for i, r := range records {
		c.offer(batch, i, r, &base)
		known += batch[i].Known
	}
	if c.Measured(base.rows-known) >= 4 { // the reference of the comparison
		c.rank(batch, records)
	}
	c.quiet += min(len(c.order), 1)
	n = c.turn(c.best(batch, base), base.rows)
	for s := range c.idle {
		c.idle[s] += min(len(c.order), 1)
	}
	for _, inc := range c.order[:n] {
		run := &batch[inc.run]
		if run.Source.Computed() {
			if c.idle[run.Source] = 0; run.Depth == run.Known {
				c.tried[run.Source]++
			}
		}
		run.Depth++
	}
	c.deepen(batch, records, &base, n)
	for i, r := range records {
		batch[i].settle(r)
	}
}

// forget makes the sources that are offered more likely to be tried again.
func (c *Controller) forget(offered Sources) {
	for s := range c.accepted {
		for j := range c.accepted[s] {
			if offered.Has(Source(s)) {
				c.accepted[s][j].fade(idleRate)
			}
		}
	}
}

// Idle is the number of rounds since drafts of a computed source were chosen, of those that could have had some.
func (c *Controller) Idle(s Source) int { return c.idle[s] }

// offer chooses the source of a run, and adds the fixed part of the run to the plan.
func (c *Controller) offer(batch []Run, i int, r *Record, p *plan) {
	run := &batch[i]
	limit, gains := c.source(r, run)
	c.gains, c.limits, c.from = append(c.gains, gains), append(c.limits, limit), append(c.from, run.Source)
	run.Depth = run.Known
	p.tokens, p.rows = p.tokens+float64(1+run.Known), p.rows+1+run.Known
	for j := run.Known; j < limit && r.Fixed != DepthAuto; j++ {
		run.Depth++
		p.add(run, j, gains[j])
	}
}

// rank makes the order of all drafts whose number is not fixed and that may gain half the cost of a row. By depth it is nearly
// sorted already.
func (c *Controller) rank(batch []Run, records []*Record) {
	for j := range slices.Max(c.limits) {
		for i, limit := range c.limits {
			if j >= batch[i].Known && j < limit && (j == batch[i].Known || c.gains[i][j] > c.rows[1]/2) && records[i].Fixed == DepthAuto {
				c.order = append(c.order, increment{i, j, c.gains[i][j]})
			}
		}
	}
	c.sort()
}

// sort puts the drafts with the highest gains first, and those of a run in their order.
func (c *Controller) sort() {
	slices.SortStableFunc(c.order, func(a, b increment) int { return cmp.Compare(b.gain, a.gain) })
}

// best is the candidate with the most tokens per second if passes take as long as they may.
func (c *Controller) best(batch []Run, p plan) candidate {
	plain := p.rows
	best := candidate{0, p.tokens, c.rate(&p)}
	c.candidates = append(c.candidates[:0], best)
	low := best.rate
	for n, inc := range c.order {
		if p.add(&batch[inc.run], inc.depth, inc.gain); !c.Estimated(p.rows) && n+1 < len(c.order) {
			continue
		}
		x := candidate{n + 1, p.tokens, c.rate(&p)}
		if c.candidates = append(c.candidates, x); x.rate > c.candidates[0].rate {
			c.quiet, c.rested = 0, false
		}
		if r := x.rate * (1 - 2*c.Doubt(p.rows, plain)); r > low {
			best, low = x, r
		}
	}
	c.price = best.rate
	return best
}

// turn is the number of drafts of this round: the best, or those of a trial. Without drafts the pass has plain rows.
func (c *Controller) turn(best candidate, plain int) int {
	switch c.left--; {
	case c.whole() && c.trial <= len(c.order):
		return c.trial
	case c.left >= 0:
		return best.drafts
	}
	trial, most := best.drafts, leastGain+idleGain*min(float64(c.idle[c.drafter])/Backlog, 1)
	for _, x := range c.candidates {
		if gain := c.gain(x, best, plain); gain > most {
			trial, most = x.drafts, gain
		}
	}
	if trial == best.drafts {
		return trial
	}
	if c.trial, c.left = trial, 2*trialRounds-1; c.rested {
		c.rested, c.left = false, c.left+Backlog/2 // rounds whose rows the drafter begins with
		return best.drafts
	}
	return trial
}

// gain is what a trial of a candidate is expected to gain, in rounds of the best one. What the trial
// finds has a logistic distribution around the expected rate. If the candidate is faster, all rounds of the horizon gain; if not, it
// is not used. The expected loss of the trial itself is subtracted.
func (c *Controller) gain(x, best candidate, plain int) float64 {
	spread := c.Surprise(plain+x.drafts, plain+best.drafts, trialRounds) * math.Sqrt(3) / math.Pi
	if spread == 0 {
		return 0
	}
	faster := (x.rate/best.rate - 1) / spread
	loss := trialRounds * x.tokens / best.tokens * (best.rate/x.rate - 1)
	return horizon*spread*(max(faster, 0)+exactmath.Log(1+exactmath.Exp(-math.Abs(faster)))) - max(loss, 0)
}

// Chosen reports the time of Choose and of all that goes with it. If no drafts were expected to gain for long, the next
// rounds are plain without a choice.
func (c *Controller) Chosen(took time.Duration) {
	if c.rest = 0; c.quiet >= quietRounds && c.left < 0 {
		c.rest = int(min(took.Seconds()/(choiceShare*c.Level()*c.Pass(c.runs)), maxRest))
	}
}

// Rests reports whether there is no choice in this round. The drafter then has nothing to do and need not be fed.
func (c *Controller) Rests(runs int) bool {
	if c.rest == 0 || runs != c.runs {
		c.rest = 0
		return false
	}
	c.rested = true
	c.rest--
	return true
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

// From is the record of a new sequence whose drafts are computed by a source.
func From(s Source) *Record { return &Record{source: s} }

// Rate is the expected tokens per second of a single sequence with a number of drafts of its last computed source;
// with none, those of decoding without a drafter. It is 0 before any pass was reported.
func (c *Controller) Rate(r *Record, depth int) float64 {
	if !c.Known() {
		return 0
	}
	if depth == 0 {
		return 1 / (c.Pass(1) * c.Level())
	}
	p := plan{tokens: 1, rows: 1}
	gains := c.chances(r, r.source, 0, depth, 0)
	for j, gain := range gains[:depth] {
		p.add(&Run{Source: r.source}, j, gain)
	}
	return c.rate(&p) / c.Level()
}

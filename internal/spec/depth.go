package spec

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/cost"
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
//   - A trial takes another candidate for two rounds: of those that the budget of trials allows, the one with the most
//     tokens per second after its doubt is added. Then come two rounds of the choice, and the trial is charged what it
//     has cost as far as is known now, with the time of rows that the drafter had to be fed for it. The budget is 0.2
//     rounds at once and 0.2 % of all later rounds. A trial that is expected to gain is always allowed, so it alternates
//     with the choice until the doubt is gone. If no pass of its size was measured, it is enough that it may gain.
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
	spent    float64                // rounds that trials have cost and that are not earned yet
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

// loss is how many rounds of the best candidate a trial costs.
func (x candidate) loss(best candidate) float64 {
	return trialRounds * x.tokens / best.tokens * (best.rate/x.rate - 1)
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
	idleRate   = 0.002 // those of a kind of copies, per round that could have had one; and the runs that had drafts of a drafter

	maxHope      = 0.4   // of a doubt: a large one says less about a candidate than a trial of a smaller one
	trialShare   = 0.002 // of all rounds, which trials may cost
	trialAdvance = 0.2   // rounds that trials may cost at once
	maxCharge    = 0.5   // rounds that a trial is charged at most: a larger charge would end trials for long
	firstRounds  = 24    // that a drafter has before it is compared with another
	trialRounds  = 2     // a plain pass after drafts is not typical; the next one is
	quietRounds  = 16    // without drafts that are expected to gain, after which not every round has a choice
	choiceShare  = 0.002 // of the time of passes, which choices may take then
	maxRest      = 16    // rounds without a choice: copies that pay begin later by these
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
	c.earn()
	switch c.left--; {
	case c.left >= 2*trialRounds:
		return best.drafts
	case c.whole() && c.trial <= len(c.order):
		return c.trial
	}
	hope := candidate{drafts: best.drafts} // its rate has the doubt added
	for _, x := range c.candidates {
		if c.left == trialRounds-1 && x.drafts == c.trial {
			c.spent += min(max(x.loss(best), 0), maxCharge)
		}
		r := x.rate * (1 + min(c.Doubt(plain+x.drafts, plain+best.drafts), maxHope))
		ok := c.spent+x.loss(best) <= trialAdvance || r > best.rate && c.Measured(plain+x.drafts) == 0
		if c.left < 0 && x.drafts != best.drafts && r > hope.rate && ok {
			hope = candidate{drafts: x.drafts, rate: r}
		}
	}
	if hope.drafts == best.drafts {
		return best.drafts
	}
	if c.trial, c.left = hope.drafts, 2*trialRounds-1; c.rested {
		c.rested, c.left = false, c.left+Backlog/2 // rounds whose rows the drafter begins with
		return best.drafts
	}
	return hope.drafts
}

// earn adds the share of a round to the budget of trials.
func (c *Controller) earn() { c.spent = max(c.spent-trialShare, -trialRounds) }

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
	c.earn()
	return true
}

// Charge reports the time of feeding a drafter rows that had waited: a trial bears it.
func (c *Controller) Charge(took time.Duration) {
	if c.Known() && c.whole() {
		c.spent += min(took.Seconds()/(c.Level()*c.Pass(c.runs)), maxCharge)
	}
}

// compete chooses the drafter of the round. A call costs about as much for one run as for all of them, so all runs have the
// same, and it does not depend on single texts. A new drafter has some rounds to itself, in which its costs are measured.
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
		if !s.Computed() {
			c.accepted[s][0].fade(idleRate)
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

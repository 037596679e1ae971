package spec

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/cost"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Controller chooses the source and the number of drafts of each run. Under the exact rule the choice changes the speed of a text only.
//
// All drafts that a batch could make are sorted, the most likely to be accepted first. A candidate is a number of drafts from the beginning
// of that order, such that the pass has one of the sizes that the cost model estimates; none is plain decoding. The acceptance counts give
// the expected tokens of a candidate, the cost model gives its time.
//
//   - The choice is the candidate with the most tokens per second.
//   - A trial takes another candidate for two rounds, or plain decoding for six: drafts slow down the first plain passes after them. The
//     trial that is expected to gain most begins. Two rounds of the choice follow.
//   - After a round without drafts, only some rounds have a choice: choices then take 0.2 % of the time.
//
// A Controller belongs to one goroutine at a time.
type Controller struct {
	cost.Model
	// Blocks are the maximum drafts of drafters that compute a whole draft in one step, by source; 0: a token is a step.
	Blocks [cost.Drafters]int

	accepted [numSources][MaxDepth]frequency
	drafter  Source               // of this round
	begun    [cost.Drafters]int   // quarters of firstRounds that a drafter has had
	idle     [numSources]int      // rounds since drafts of a source were chosen, of those that could have had some
	rest     int                  // rounds until the next choice
	trial    int                  // rows of the running trial, or of the last
	left     int                  // rounds until a trial may begin, with the one that runs; negative: it may
	runs     int                  // of the batch
	settle   int                  // plain passes that are to take longer, since drafts came before
	price    float64              // tokens that the time of one level is worth: those of the choice in that time
	rows     [1 + MaxCopy]float64 // cost of a pass with a number of drafts for each run, in tokens of a run

	calibrations [cost.Drafters]calibration
	more         []func([]float32) bool           // by run
	least        [cost.Drafters][MaxDepth]float64 // that a draft must be expected to gain, by position
	asked        [cost.Drafters]bool              // the drafter asks before each step, or has a probability for each draft of a block

	// Scratch of Choose.
	offers     []offer     // by run
	order      []increment // all drafts that could be made, the most likely first
	candidates []candidate // the first is plain decoding
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
	idleRate   = 0.002 // those of a source, per round: drafts that were rejected are tried again

	horizon     = 60    // rounds in which a candidate that is better is used
	leastGain   = 0.2   // rounds, of a trial
	trialRounds = 2     // that show what a candidate costs, and rounds of the choice after them
	settling    = 4     // plain passes after drafts that take longer
	restRounds  = 32    // without a choice at most, and twice as many as had no drafts before: copies that pay begin later
	choiceShare = 0.002 // of the time of passes, which choices may take then
)

// NewController returns a controller without measurements.
func NewController() *Controller { return &Controller{} }

// Report records the outcome of a round for a sequence, whose drafts were made as Choose last said.
func (c *Controller) Report(r *Record, o Outcome) {
	r.add(&o, r.source)
	if o.Tokens == 0 {
		return
	}
	o.Speculative(func(j int, accepted bool) {
		c.accepted[r.source][j].add(accepted, acceptRate)
		r.accepted[r.source][j].add(accepted, ownRate)
		if j < len(r.probs) {
			c.calibrations[r.source].count(r.probs[j], accepted)
		}
	})
}

// ObservePass reports a pass over a number of rows, none of a prompt. took is 0 if it was not measured. Plain passes take longer soon
// after drafts.
func (c *Controller) ObservePass(rows int, took time.Duration) {
	c.settle = max(c.settle-1, 0)
	after := min(c.settle, 1)
	if rows > c.runs {
		after, c.settle = 0, 1+settling
	}
	c.Model.ObservePass(rows, float64(after), took)
}

// ObserveDraft reports a call of the drafter of a source. depths are the numbers of tokens that it drafted for each run, 0 for runs
// without drafts of it. fed is the number of rows that it was late with.
func (c *Controller) ObserveDraft(s Source, depths []int, fed int, took time.Duration) {
	deepest, total := 0, 0
	for _, d := range depths {
		deepest, total = max(deepest, d), total+d
	}
	c.Model.ObserveDraft(int(s), c.steps(s, deepest), total, fed, took)
}

// steps is how many steps drafts of a depth take.
func (c *Controller) steps(s Source, depth int) int {
	if c.Blocks[s] > 0 {
		return min(depth, 1)
	}
	return depth
}

// increment is one more draft for one run.
type increment struct {
	run, depth int     // depth is that of the drafts before it
	gain       float64 // the chance that it is accepted, and those before it
}

// candidate is an expected round: a number of drafts from the beginning of the order.
type candidate struct {
	rows           int
	tokens, rate   float64            // rate is tokens per level
	deepest, total [cost.Drafters]int // of each drafter: the greatest depth, all draft tokens
}

// add adds draft j of a run.
func (x *candidate) add(run *Run, j int, gain float64) {
	x.tokens += gain
	x.rows++
	if s := run.Source; s.Computed() {
		x.deepest[s] = max(x.deepest[s], j+1)
		if x.total[s]++; j == run.Known {
			x.total[s] += run.Known
		}
	}
}

// rated is a candidate with its rate. A drafter that was idle is first fed the rows that it lacks: each of the rounds in which the candidate
// is used has a part of that time.
func (c *Controller) rated(x candidate) candidate {
	took := c.Pass(x.rows)
	for s, depth := range x.deepest {
		late := min(depth, 1) * c.runs * min(c.idle[s], Backlog)
		took += c.Draft(s, c.steps(Source(s), depth), x.total[s], float64(late)/horizon)
	}
	x.rate = x.tokens / took
	return x
}

// offer is the drafts that a run could have: their source, their number, and the chance of each that it is accepted, and those
// before it.
type offer struct {
	Source
	limit int
	gains [MaxCopy]float64
}

// Choose says for each run where its drafts shall come from and how many there shall be: at
// most its Depth, and none if it has no source. records[i] is that of batch[i].
//
// The known next tokens of a run count as accepted drafts and cost a row
// with every choice; a head has to draft them again, if it is to draft what follows them.
func (c *Controller) Choose(batch []Run, records []*Record) {
	c.order, c.offers = c.order[:0], c.offers[:0]
	if len(batch) == 0 {
		return
	}
	c.begin(batch)
	var base candidate
	for i, r := range records {
		c.take(&batch[i], r, &base)
	}
	c.sort()
	x := c.turn(c.best(batch, base))
	for _, inc := range c.order[:x.rows-base.rows] {
		batch[inc.run].Depth++
	}
	c.age(batch)
	c.deepen(batch, records, base.rows, x.rows)
	for i, r := range records {
		batch[i].settle(r)
	}
}

// begin prepares the comparison of sources in a batch, and chooses the drafter.
func (c *Controller) begin(batch []Run) {
	n, offered := len(batch), Sources(0)
	for _, run := range batch {
		offered |= run.Sources
	}
	c.runs = n
	c.price = max(c.price, float64(n)/c.Pass(n)) // plain decoding
	for d := range c.rows {
		c.rows[d] = c.Pass(n*(1+d)) * c.price / float64(n)
	}
	if offered.Has(Computed) && offered.Has(Beside) {
		c.compete()
	}
}

// age counts the rounds of sources without drafts, and forgets.
func (c *Controller) age(batch []Run) {
	for s := range c.accepted {
		for j := range c.accepted[s] {
			c.accepted[s][j].fade(idleRate)
		}
	}
	for s := range c.idle {
		c.idle[s] += min(len(c.order), 1)
	}
	for _, run := range batch {
		if run.Depth > run.Known {
			c.idle[run.Source] = 0
		}
	}
}

// Idle is the number of rounds since drafts of a source were chosen, of those that could have had some.
func (c *Controller) Idle(s Source) int { return c.idle[s] }

// take chooses the source of a run, and adds the fixed part of the run to a candidate, and the other drafts to the order.
func (c *Controller) take(run *Run, r *Record, x *candidate) {
	from := c.source(run, r)
	c.offers = append(c.offers, from)
	run.Source, run.Depth = from.Source, run.Known
	x.tokens, x.rows = x.tokens+float64(1+run.Known), x.rows+1+run.Known
	for j := run.Known; j < from.limit; j++ {
		if r.Fixed != DepthAuto {
			run.Depth++
			x.add(run, j, from.gains[j])
		} else if c.Known() {
			c.order = append(c.order, increment{len(c.offers) - 1, j, from.gains[j]})
		}
	}
}

// sort puts the drafts with the highest gains first. Of equal ones the first of each run come first, so those of a run keep their order.
func (c *Controller) sort() {
	slices.SortFunc(c.order, func(a, b increment) int { return cmp.Or(cmp.Compare(b.gain, a.gain), a.depth-b.depth, a.run-b.run) })
}

// best is the candidate with the most tokens per second.
func (c *Controller) best(batch []Run, x candidate) candidate {
	best := c.rated(x)
	c.candidates = append(c.candidates[:0], best)
	for n, inc := range c.order {
		if x.add(&batch[inc.run], inc.depth, inc.gain); !c.Estimated(x.rows) && n+1 < len(c.order) {
			continue
		}
		x = c.rated(x)
		c.candidates = append(c.candidates, x)
		if x.rate > best.rate {
			best = x
		}
	}
	c.price = best.rate
	return best
}

// turn is the candidate of this round: the best, or that of a trial.
func (c *Controller) turn(best candidate) candidate {
	c.left--
	trial, most, rounds := best, leastGain, 0
	for _, x := range c.candidates {
		if c.whole() && x.rows == c.trial {
			return x
		}
		for n := trialRounds; c.left < 0 && n <= trialRounds+settling; n += settling {
			if gain := c.gain(&x, &best, n); gain > most {
				trial, most, rounds = x, gain, n
			}
		}
	}
	if rounds > 0 {
		c.trial, c.left = trial.rows, rounds+trialRounds-1
	}
	return trial
}

// gain is what a trial of some rounds of a candidate is expected to gain, in rounds of the best one; no number for that one. What the last
// trialRounds find has a logistic distribution around the expected rate. If the candidate is faster, all rounds of the horizon gain; if
// not, it is not used. The expected loss of the trial is subtracted.
func (c *Controller) gain(x, best *candidate, rounds int) float64 {
	after := 0.0
	if x.rows <= c.runs && rounds <= settling {
		after = 1
	}
	spread := c.Surprise(x.rows, best.rows, trialRounds, after) * math.Sqrt(3) / math.Pi
	return horizon*spread*exactmath.Log(1+exactmath.Exp((x.rate/best.rate-1)/spread)) - float64(rounds)*x.tokens/best.tokens*(best.rate/x.rate-1)
}

// Chosen reports the time of Choose and of all that goes with it. In a long trial and after rounds without drafts, the next ones have none.
func (c *Controller) Chosen(took time.Duration) {
	c.rest = 0
	if c.left >= settling+trialRounds {
		c.rest, c.left = c.left-trialRounds, trialRounds
	} else if plain := slices.Min(c.idle[:]); plain > 0 && !c.whole() {
		c.rest = int(min(took.Seconds()/(choiceShare*c.Level()*c.Pass(c.runs)), float64(min(2*plain, restRounds))))
	}
}

// Rests reports whether there is no choice in this round. The drafter then has nothing to do and need not be fed.
func (c *Controller) Rests(runs int) bool {
	if c.rest--; runs != c.runs {
		c.rest = -1
	}
	return c.rest >= 0
}

// Follow is Choose for runs that have drafts only where the depth is fixed.
func (c *Controller) Follow(batch []Run, records []*Record) {
	for i, r := range records {
		c.take(&batch[i], r, &candidate{})
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
	x := candidate{tokens: 1, rows: 1}
	gains := c.chances(r, r.source, 0, depth)
	for j, gain := range gains[:depth] {
		x.add(&Run{Source: r.source}, j, gain)
	}
	return c.rated(x).rate / c.Level()
}

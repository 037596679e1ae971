package spec

import (
	"cmp"
	"math"
	"slices"
)

// Controller chooses how many tokens to guess, and from which source, by what rounds have
// cost on this machine and by how many guesses have held. Depth 0, plain decoding, is
// always among the choices, so that guessing is never slower than not guessing for long.
// The choice never changes a text under the exact rule, only its speed.
//
// With depth k a round gives 1 + p1 + p1p2 + … + p1…pk tokens, where pj is the probability
// that guess j holds if those before it do, and takes the time of a pass over k+1 rows and
// of drafting k guesses. The controller takes the depths with the most tokens per second.
//
// A Controller belongs to one goroutine at a time.
type Controller struct {
	costs
	accepted [numSources][MaxDepth]average // how often guess j of a source holds if those before it do
	idle     [numSources]int               // choices since a source was taken, of those in which it could be
	hope     bool                          // one more guess would have paid last, if it were sure to hold
	since    int                           // rounds since another depth was tried
	trials   int

	// Scratch of Choose, by run where not said otherwise.
	gains  [][MaxDepth]float64 // tokens that guess j is expected to give
	limits []int
	former []int                 // depths taken last, within the limits
	order  []increment           // all guesses that could be made, the best first
	passes []float64             // cost of a pass, by how many guesses there are in it
	pass   [MaxDepth + 1]float64 // cost of a pass in which every run has the same depth
	guess  [MaxDepth + 1]float64 // and of drafting for it
}

// Record is what a controller knows of one sequence.
type Record struct {
	Stats
	Fixed Depth // DepthAuto: the controller chooses; otherwise this one, whatever it costs

	accepted [numSources][MaxDepth]average
	source   Source          // chosen last
	depth    [numSources]int // chosen last, by source
	trial    bool            // the last choice was one of guessing where that is not thought to pay
	lucky    bool            // and went well
	turn     bool            // the last choice of a source was made to try it
	calm     int             // rounds that are still to go without guesses, to see what they take
}

const (
	holdRate = 0.01 // of everybody's experience
	ownRate  = 0.04 // of a sequence's own

	// Every so many rounds something is done that is not thought best, since what is never
	// measured is never known to be better. It bounds what that costs.
	tryEvery = 64
	tryFirst = 8 // at first, when little is known, more often

	// calmRounds more follow a round without guesses that is a try: it is disturbed itself.
	calmRounds = 1

	// keepRate is the share of the best rate that is not worth a change.
	keepRate = 0.97
)

// priors are the chances of a first guess before anything is known: for copies as counted
// in program text and prose, for a network as its makers report.
var priors = [numSources]float64{Computed: 0.7, CopyOf2: 0.35, CopyOf3: 0.45, CopyOf4: 0.6, CopyOf8: 0.75}

// NewController returns a controller that knows nothing yet.
func NewController() *Controller { return &Controller{} }

// Report takes in what a round did for a sequence, whose drafts were made as Choose last said.
func (c *Controller) Report(r *Record, o Outcome) {
	r.add(&o, r.source)
	if o.Tokens == 0 {
		return
	}
	s := r.source
	for j := range min(o.Drafted, o.Accepted+1) {
		x := 0.0
		if j < o.Accepted {
			x = 1
		}
		c.accepted[s][j].add(x, holdRate)
		r.accepted[s][j].add(x, ownRate)
	}
	// Without drafts nothing is known of acceptance, so a trial that went well is repeated at
	// once, as long as drafts could pay at all.
	r.lucky = r.trial && o.Drafted > 0 && o.Accepted == o.Drafted && c.hope
}

// increment is one more guess for one run.
type increment struct {
	run, depth int // depth is that of the guesses before it
	gain       float64
}

// Choose says for each run where its guesses shall come from and how many there shall be:
// at most its Depth, and none if it offers no source. records[i] is that of batch[i].
func (c *Controller) Choose(batch []Run, records []*Record) {
	c.gains, c.limits, c.former, c.order = c.gains[:0], c.limits[:0], c.former[:0], c.order[:0]
	for depth := range c.pass {
		c.pass[depth] = c.verifyCost(len(batch) * (1 + depth))
		c.guess[depth] = c.draftCost(depth, len(batch))
	}
	for i := range batch {
		run, r := &batch[i], records[i]
		limit := max(min(run.Depth, MaxDepth), 0)
		if run.Sources == 0 {
			limit = 0
		}
		c.gains = append(c.gains, [MaxDepth]float64{})
		run.Source = c.choose(r, run.Sources, limit, &c.gains[i])
		r.source = run.Source
		if n, ok := r.Fixed.Fixed(); ok {
			limit = min(n, limit)
			run.Depth = limit
			c.former = append(c.former, limit)
		} else {
			for j := range limit {
				c.order = append(c.order, increment{i, j, c.gains[i][j]})
			}
			run.Depth = 0
			c.former = append(c.former, min(r.depth[run.Source], limit))
		}
		c.limits = append(c.limits, limit)
	}
	if len(batch) == 1 && c.verify[1].n < 3 {
		c.order = c.order[:0] // what plain decoding takes must be known before anything is compared with it
	}
	rate := c.best(batch)
	if len(c.order) > 0 {
		c.keep(batch, rate)
	}
	c.try(batch, records)
}

// choose returns the source that promises most, as if all runs of the batch were alike, and
// sets the gains of its guesses. One that was passed over for long gets a turn.
func (c *Controller) choose(r *Record, sources Sources, limit int, gains *[MaxDepth]float64) Source {
	best, most := Computed, -1.0
	late := Source(numSources)
	for s := range Source(numSources) {
		if !sources.Has(s) {
			continue
		}
		var g [MaxDepth]float64
		c.chances(r, s, &g)
		if rate := c.promise(r, s, limit, &g); rate > most {
			best, most, *gains = s, rate, g
		}
		if limit > 0 {
			c.idle[s]++
		}
		if c.idle[s] > tryEvery {
			late = s
		}
	}
	if r.turn = late != numSources && late != best; r.turn {
		best = late
		c.chances(r, best, gains)
	}
	c.idle[best] = 0
	return best
}

// promise is the best rate of a source over the depths it may have.
func (c *Controller) promise(r *Record, s Source, limit int, gains *[MaxDepth]float64) float64 {
	from := 0
	if n, ok := r.Fixed.Fixed(); ok {
		limit = min(n, limit)
		from = limit
	}
	tokens, most := 1.0, 0.0
	for depth := range limit + 1 {
		if depth > 0 {
			tokens += gains[depth-1]
		}
		if depth < from {
			continue
		}
		drafted := depth
		if s != Computed {
			drafted = 0
		}
		most = max(most, ratio(tokens, c.pass[depth]+c.guess[drafted]))
	}
	return most
}

// chances sets the gains of a source's guesses: the probability of guess j and all before
// it. That of guess j after them is the sequence's own experience, weighed against
// everybody's, weighed against that of the guess before.
func (c *Controller) chances(r *Record, s Source, gains *[MaxDepth]float64) {
	const everybody, own = 8, 16
	p, all := priors[s], 1.0
	for j := range gains {
		p = blend(p, everybody, &c.accepted[s][j], holdRate)
		p = blend(p, own, &r.accepted[s][j], ownRate)
		all *= p
		gains[j] = all
	}
}

// best sets the depths with the most tokens per second, given those that are fixed, and
// returns that rate. For a given depth of drafting a round's time depends on its number of
// rows only, so the guesses that gain most are the ones to make; gains fall with depth, so
// none comes before the one it builds on.
func (c *Controller) best(batch []Run) float64 {
	slices.SortStableFunc(c.order, func(a, b increment) int { return cmp.Compare(b.gain, a.gain) })
	tokens, rows, drafted, runs := c.totals(batch)
	c.passes = c.passes[:0]
	for n := range len(c.order) + 1 {
		c.passes = append(c.passes, c.verifyCost(rows+n))
	}
	deepest := drafted
	for _, inc := range c.order {
		if batch[inc.run].Source == Computed {
			deepest = max(deepest, inc.depth+1)
		}
	}
	most, depth, take := 0.0, drafted, 0
	for d := drafted; d <= deepest; d++ {
		cost := c.draftCost(d, runs)
		t, n := tokens, 0
		if r := ratio(t, c.passes[0]+cost); r > most {
			most, depth, take = r, d, 0
		}
		for _, inc := range c.order {
			if inc.depth >= d && batch[inc.run].Source == Computed {
				continue
			}
			t, n = t+inc.gain, n+1
			if r := ratio(t, c.passes[n]+cost); r > most {
				most, depth, take = r, d, n
			}
		}
	}
	for _, inc := range c.order {
		if take == 0 {
			break
		}
		if inc.depth >= depth && batch[inc.run].Source == Computed {
			continue
		}
		batch[inc.run].Depth++
		take--
	}
	return most
}

// keep goes back to the former depths where the new ones, with that rate, are hardly better.
func (c *Controller) keep(batch []Run, rate float64) {
	swap := func() {
		for i := range batch {
			batch[i].Depth, c.former[i] = c.former[i], batch[i].Depth
		}
	}
	swap()
	tokens, rows, drafted, runs := c.totals(batch)
	if ratio(tokens, c.verifyCost(rows)+c.draftCost(drafted, runs)) < keepRate*rate {
		swap()
	}
}

// totals are the tokens that a round is expected to give, its rows, its depth of drafting,
// and the runs that drafting costs something for: where nothing is computed all of them are
// still learned.
func (c *Controller) totals(batch []Run) (tokens float64, rows, drafted, runs int) {
	for i := range batch {
		depth := batch[i].Depth
		tokens += 1 + sum(c.gains[i][:depth])
		rows += 1 + depth
		if batch[i].Source == Computed {
			drafted = max(drafted, depth)
			runs++
		}
	}
	if runs == 0 {
		runs = len(batch)
	}
	return tokens, rows, drafted, runs
}

// try remembers the depths and now and then changes one of them.
func (c *Controller) try(batch []Run, records []*Record) {
	tokens, rows, drafted, runs := c.totals(batch)
	c.hope = ratio(tokens+1, c.verifyCost(rows+1)+c.draftCost(max(drafted, 1), 1)) > ratio(tokens, c.verifyCost(rows)+c.draftCost(drafted, runs))
	first := c.trials // each gets its turn
	c.since++
	every := tryEvery
	if !c.hope {
		every *= 4 // it is only costs that may have changed
	}
	due := c.since >= min(tryFirst+c.trials*tryFirst/2, every)
	for k := range batch {
		i := (k + first) % len(batch)
		run, r := &batch[i], records[i]
		r.depth[r.source] = run.Depth
		r.trial = false
		switch {
		case r.Fixed != DepthAuto || c.limits[i] == 0:
		case r.calm > 0:
			run.Depth, r.calm = 0, r.calm-1
		case r.turn:
			run.Depth = max(run.Depth, 1)
		case run.Depth == 0 && (r.lucky || due):
			run.Depth, r.trial = 1, true
			c.since, due = 0, false
			c.trials++
		case due:
			if run.Depth = c.other(run.Depth, c.limits[i], rows-run.Depth); run.Depth == 0 {
				r.calm = calmRounds
			}
			c.since, due = 0, false
			c.trials++
		}
	}
}

// other is the depth to try in place of one that is not 0: of one more, one less and none
// that of which least is known. rows are those of the pass without the guesses.
func (c *Controller) other(depth, limit, rows int) int {
	best, least := 0, math.MaxInt
	for _, d := range [...]int{depth + 1, depth - 1, 0} {
		if n := c.verify[min(rows+d, maxRows)].n; d <= limit && n < least {
			best, least = d, n
		}
	}
	return best
}

// Rate is the expected tokens per second of a lone sequence with so many computed guesses;
// with none, those of decoding without a drafter. It is 0 before any pass was reported.
func (c *Controller) Rate(r *Record, depth int) float64 {
	var gains [MaxDepth]float64
	c.chances(r, Computed, &gains)
	if depth == 0 {
		return ratio(1, c.verifyCost(1)*c.level)
	}
	return ratio(1+sum(gains[:depth]), c.roundCost(depth, 1)*c.level)
}

// roundCost is a round in which each of n sequences has so many computed
// guesses, in levels.
func (c *Controller) roundCost(depth, n int) float64 {
	return c.verifyCost(n*(1+depth)) + c.draftCost(depth, n)
}

// ratio is tokens per time, 0 where nothing is known of the time.
func ratio(tokens, time float64) float64 {
	if time <= 0 {
		return 0
	}
	return tokens / time
}

func sum(list []float64) float64 {
	total := 0.0
	for _, x := range list {
		total += x
	}
	return total
}

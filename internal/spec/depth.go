package spec

import (
	"cmp"
	"slices"
)

// Controller chooses the source and the number of drafts, by what rounds have cost on this
// machine and by how many drafts were accepted. Depth 0, plain decoding, is always among the
// choices. Trials of other depths cost time even if plain decoding is the best choice: with eight
// texts of the embedded model, speculation reaches 0.92 to 0.96 of the speed of plain decoding.
// Under the exact rule the choice never changes a text, only its speed.
//
// With depth k a round gives 1 + p1 + p1p2 + … + p1…pk tokens, where pj is the probability
// that draft j is accepted if those before it are, and takes the time of a pass over k+1 rows
// and of drafting k tokens. The controller takes the depths with the most tokens per second.
//
// A Controller belongs to one goroutine at a time.
type Controller struct {
	costs
	accepted [numSources][MaxDepth]frequency
	rounds   int // since the last trial
	trials   int
	next     int     // run of the next trial
	left     int     // rounds that are left of a trial by a whole batch
	trial    int     // drafts of such a trial
	doubts   int     // rounds of batches whose choice was in doubt
	alone    float64 // tokens per second without drafts that are chosen
	gain     float64 // of the last choice, as a multiple of the rate without drafts

	// Scratch of Choose, by run where not said otherwise.
	gains  [][MaxCopy]float64 // tokens that draft j is expected to give
	limits []int              // of depth
	order  []increment        // all drafts that could be made, the best first
	rates  []float64          // tokens per second with each of them and those before it
	hopes  []float64          // the same, if passes take as little as they may
}

// Record is what a controller knows of one sequence.
type Record struct {
	Stats
	Fixed Depth // DepthAuto: the controller chooses; otherwise this one, whatever it costs

	accepted [numSources][MaxDepth]frequency
	source   Source // chosen last
	tried    int    // depth of its last trial
	again    bool   // that trial was the last choice and is to be repeated: a plain pass after drafts does not count
}

const (
	acceptRate = 0.01 // of everybody's acceptance
	ownRate    = 0.04 // of a sequence's own

	// Every tryEvery rounds a sequence takes another depth or source, for what is never measured
	// is never known to be better. At first, when little is known, every tryFirst rounds.
	tryEvery = 64
	tryFirst = 8

	// What a batch must be expected to gain by drafts before it makes them. The expectation is
	// the best of many, and thus rather too high; a batch that drafts in vain is slower than
	// plain decoding, while one that does not draft has lost no more than this.
	worth = 1.06

	// What a batch may lose by sizes of passes that are known well.
	nearly = 1.02

	// How many times its usual error a cost may be too high, for a trial to be worth it.
	hope = 1.5

	// A choice is measured in relation to the choices beside it. A batch has so many that one of
	// them always seems cheap by chance, and one that drafts for long is no longer measured beside
	// plain decoding. So plain decoding is measured more often first, what is new is measured in
	// turns with it unless it promises far more, and it is tried again for some rounds in every
	// trial if drafts seem to gain little, and else in every fourth.
	wellKnown  = 8
	farMore    = 1.5
	little     = 1.2
	plainTrial = 3
)

// priors are the chances of a first draft before anything is known: for copies as counted in
// program text and prose, for a head as its makers report.
var priors = [numSources]float64{Computed: 0.7, CopyOf2: 0.35, CopyOf3: 0.45, CopyOf4: 0.6, CopyOf8: 0.75}

// NewController returns a controller that knows nothing yet.
func NewController() *Controller { return &Controller{} }

// frequency counts how often something happens and forgets.
type frequency struct{ hits, n float64 }

func (f *frequency) add(hit bool, forget float64) {
	f.hits, f.n = f.hits*(1-forget), f.n*(1-forget)+1
	if hit {
		f.hits++
	}
}

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
		c.accepted[r.source][j].add(accepted, acceptRate)
		r.accepted[r.source][j].add(accepted, ownRate)
	})
}

// increment is one more draft for one run.
type increment struct {
	run, depth int // depth is that of the drafts before it
	gain       float64
}

// Choose says for each run where its drafts shall come from and how many there shall be: at
// most its Depth, and none if it has no source. records[i] is that of batch[i].
//
// The tokens that a run is known to go on with count as drafts that are accepted and cost a row
// whatever is chosen; a head has to draft them again, if it is to draft what follows them.
func (c *Controller) Choose(batch []Run, records []*Record) {
	c.gains, c.limits, c.order = c.gains[:0], c.limits[:0], c.order[:0]
	if len(batch) == 0 {
		return
	}
	plain := 0 // rows without drafts that are chosen here
	for i := range batch {
		run, r := &batch[i], records[i]
		c.gains = append(c.gains, [MaxCopy]float64{})
		limit := c.begin(r, run, len(batch), &c.gains[i])
		plain += 1 + run.Depth - run.Known
		c.limits = append(c.limits, limit)
		for j := run.Depth; j < limit; j++ {
			c.order = append(c.order, increment{i, j, c.gains[i][j]})
		}
	}
	if n := c.pass.cells[min(plain, maxRows)].n; n < 3 || n < c.enough() && len(batch) > 1 {
		c.order = c.order[:0] // what plain decoding takes must be known before anything is compared with it
	}
	if c.left == 0 {
		c.rounds++
	}
	take := c.best(batch)
	if len(batch) > 1 && c.gain < worth {
		take = 0
	}
	c.draw(batch, take)
	if c.doubtful(batch, plain) {
		if c.doubts++; c.doubts%3 > 0 { // a plain pass after drafts does not count
			decodePlainly(batch, records)
		}
	}
	c.explore(batch, records, take)
	for i, r := range records {
		batch[i].settle(r)
	}
}

// draw adds the first n drafts of the order.
func (c *Controller) draw(batch []Run, n int) {
	for _, inc := range c.order[:min(n, len(c.order))] {
		batch[inc.run].Depth++
	}
}

// Follow is Choose for runs that have drafts only where the depth is fixed.
func (c *Controller) Follow(batch []Run, records []*Record) {
	for i, r := range records {
		var gains [MaxCopy]float64
		c.begin(r, &batch[i], len(batch), &gains)
		batch[i].settle(r)
	}
}

// begin gives a run its source and the least depth that it may have, and returns the greatest.
func (c *Controller) begin(r *Record, run *Run, n int, gains *[MaxCopy]float64) (limit int) {
	limit = max(min(run.Depth, MaxCopy), run.Known)
	if run.Sources == 0 {
		limit = run.Known
	}
	run.Depth = run.Known
	fixed, ok := r.Fixed.Fixed()
	if ok {
		limit = min(run.Known+fixed, limit)
	}
	run.Source = c.source(r, run, limit, n, gains)
	limit = run.Source.limit(limit, run.Known)
	if ok {
		run.Depth = limit
	}
	return limit
}

// limit is the greatest depth of a source, of depth tokens, of which the first are known.
func (s Source) limit(depth, known int) int {
	if s == Computed {
		return max(min(depth, MaxDepth), known)
	}
	return depth
}

// settle makes the choice for a run the last one.
func (run *Run) settle(r *Record) {
	if r.source = run.Source; run.Depth <= run.Known {
		run.Depth = 0 // nothing is to be drafted
	}
}

// source is the one that promises most, as if all n runs of the batch were alike; under the ratio rule,
// by what is expected of any machine and text. It sets the gains of its drafts.
func (c *Controller) source(r *Record, run *Run, limit, n int, gains *[MaxCopy]float64) Source {
	best, most := Computed, -1.0
	for s := range Source(numSources) {
		if !run.Sources.Has(s) {
			continue
		}
		var g [MaxCopy]float64
		c.chances(r, s, run.Known, &g)
		tokens, rate := 1+float64(run.Known), 0.0
		limit := s.limit(limit, run.Known)
		for depth := run.Known; depth <= limit; depth++ {
			if depth > run.Known {
				tokens += g[depth-1]
			}
			if r.Fixed != DepthAuto && depth < limit {
				continue
			}
			drafted := depth
			if s != Computed || depth == run.Known {
				drafted = 0
			}
			rate = max(rate, ratio(tokens, c.roundCost(n*(1+depth), drafted, n)))
		}
		if run.Dists { // such drafts shape the text, which must not depend on what was measured
			rate = priors[s]
		}
		if rate > most {
			best, most, *gains = s, rate, g
		}
	}
	return best
}

// chances sets the gains of a source's drafts: the probability that draft j and all before it
// are accepted. That of draft j after them is the sequence's own acceptance, weighed against
// everybody's, weighed against that of the draft before. The first known ones are certain.
func (c *Controller) chances(r *Record, s Source, known int, gains *[MaxCopy]float64) {
	const everybody, own = 8, 16
	p, all := priors[s], 1.0
	for j := range gains {
		if j < MaxDepth {
			p = r.accepted[s][j].given(c.accepted[s][j].given(p, everybody), own)
		}
		if j >= known {
			all *= p
		}
		gains[j] = all
	}
}

// best puts the drafts that gain most first, and says how many of them give the most tokens per
// second, beside those of fixed depths. Gains fall with depth, so none comes before the one it
// builds on.
func (c *Controller) best(batch []Run) (take int) {
	slices.SortStableFunc(c.order, func(a, b increment) int { return cmp.Compare(b.gain, a.gain) })
	tokens, rows, depth, runs := 0.0, 0, 0, 0
	for i := range batch {
		run := &batch[i]
		tokens, rows = tokens+1+float64(run.Known), rows+1+run.Depth
		for j := run.Known; j < run.Depth; j++ {
			tokens += c.gains[i][j]
		}
		if run.Source == Computed {
			if run.Depth > run.Known {
				depth = max(depth, run.Depth)
			}
			runs++
		}
	}
	c.alone = ratio(tokens, c.roundCost(rows, depth, runs))
	most := c.alone
	c.rates, c.hopes = c.rates[:0], c.hopes[:0]
	for n, inc := range c.order {
		if tokens += inc.gain; batch[inc.run].Source == Computed {
			depth = max(depth, inc.depth+1)
		}
		pass, draft := c.passFit(rows+n+1), c.draftCost(depth, runs)
		x := ratio(tokens, pass.cost+draft)
		c.hopes = append(c.hopes, ratio(tokens, pass.cost*max(1-hope*pass.doubt, 0.5)+draft))
		if c.rates = append(c.rates, x); x > most {
			most, take = x, n+1
		}
	}
	c.gain = ratio(most, c.alone)
	if len(batch) > 1 && take > 0 {
		take = c.familiar(rows, take, most)
	}
	return take
}

// familiar is, of the numbers of drafts that are expected to give nearly the most tokens per second, the one
// whose pass was measured most often, take if it is one. Which of them is best changes with every round of a
// batch, and a device has to prepare for every size that it is given.
func (c *Controller) familiar(rows, take int, most float64) int {
	best := take
	for n, x := range c.rates {
		if x >= most/nearly && c.pass.cells[min(rows+n+1, maxRows)].n > c.pass.cells[min(rows+best, maxRows)].n {
			best = n + 1
		}
	}
	return best
}

// doubtful reports whether passes of about the chosen size were hardly measured. plain is the
// size without drafts.
func (c *Controller) doubtful(batch []Run, plain int) bool {
	rows, known := 0, 0
	for i := range batch {
		rows, known = rows+1+batch[i].Depth, known+batch[i].Known
	}
	if len(batch) == 1 || rows <= plain+known || plain >= maxRows || c.gain > farMore {
		return false
	}
	n := 0
	rows = min(rows, maxRows)
	for r := max(rows-rows/8, plain+1); r <= min(rows+rows/8, maxRows); r++ {
		n += c.pass.cells[r].n
	}
	return n < c.enough()
}

// decodePlainly takes back the drafts that were chosen.
func decodePlainly(batch []Run, records []*Record) {
	for i, r := range records {
		if r.Fixed == DepthAuto {
			batch[i].Depth = batch[i].Known
		}
	}
}

// explore has one run in turn try something else now and then: another source, or one draft
// more, one less or none, whichever was measured least; or all of a batch none, or as many as may be better than
// those that were taken.
func (c *Controller) explore(batch []Run, records []*Record, take int) {
	for i, r := range records {
		if r.again && r.Fixed == DepthAuto {
			batch[i].Depth = max(min(r.tried, c.limits[i]), batch[i].Known)
		}
		r.again = false
	}
	if c.left > 0 {
		c.left--
		decodePlainly(batch, records)
		c.draw(batch, c.trial)
		return
	}
	if !c.due() {
		return
	}
	i := c.next % len(batch)
	c.next++
	run, r := &batch[i], records[i]
	if r.Fixed != DepthAuto || c.limits[i] <= run.Known {
		return // the next round tries the next run
	}
	c.tried()
	if other := run.Sources &^ run.Source.only(); other != 0 && c.trials/len(batch)%2 == 0 {
		for run.Source = Source(c.trials % numSources); !other.Has(run.Source); {
			run.Source = (run.Source + 1) % numSources
		}
		run.Depth = run.Known + 1
		return
	}
	rows, drafts := len(batch), 0
	for j := range batch {
		if j != i {
			rows += batch[j].Depth
		}
		if records[j].Fixed == DepthAuto {
			drafts += batch[j].Depth - batch[j].Known
		}
	}
	if drafts > 0 && (c.gain < little || len(batch) > 1 && c.trials%4 == 0) {
		c.left, c.trial = plainTrial-1, 0
		decodePlainly(batch, records)
		return
	}
	if n := c.promising(take); n > 0 && (len(batch) > 1 || c.trials%2 == 0) {
		c.left, c.trial = 1, n
		decodePlainly(batch, records)
		c.draw(batch, n)
		return
	}
	tried, least := run.Known, -1
	for _, d := range [...]int{run.Depth + 1, run.Depth - 1, run.Known} {
		if d < run.Known || d > c.limits[i] || d == run.Depth {
			continue
		}
		if n := c.pass.cells[min(rows+d, maxRows)].n; least < 0 || n < least {
			tried, least = d, n
		}
	}
	run.Depth, r.tried, r.again = tried, tried, true
}

// promising is the number of drafts, other than those that were taken, that may give the most tokens per second; 0 if
// it cannot give more than they do.
func (c *Controller) promising(take int) (best int) {
	most := c.alone
	if take > 0 {
		most = c.rates[take-1]
	}
	for n, x := range c.hopes {
		if n+1 != take && x > most && (n+1)%len(c.limits) == 0 {
			most, best = x, n+1
		}
	}
	return best
}

// due reports whether it is time for a trial.
func (c *Controller) due() bool { return c.rounds >= min(tryFirst+c.trials*tryFirst/2, tryEvery) }

// tried counts a trial.
func (c *Controller) tried() { c.rounds, c.trials = 0, c.trials+1 }

// Rate is the expected tokens per second of a lone sequence with a number of computed drafts;
// with none, those of decoding without a drafter. It is 0 before any pass was reported.
func (c *Controller) Rate(r *Record, depth int) float64 {
	if depth == 0 {
		return ratio(1, c.passCost(1)*c.level)
	}
	var gains [MaxCopy]float64
	c.chances(r, Computed, 0, &gains)
	tokens := 1.0
	for _, gain := range gains[:depth] {
		tokens += gain
	}
	return ratio(tokens, c.roundCost(1+depth, depth, 1)*c.level)
}

// roundCost is that of a round with a number of rows in which a number of runs is drafted for
// to a depth, in levels.
func (c *Controller) roundCost(rows, depth, runs int) float64 {
	return c.passCost(rows) + c.draftCost(depth, runs)
}

// ratio is tokens per time, 0 where nothing is known of the time.
func ratio(tokens, time float64) float64 {
	if time <= 0 {
		return 0
	}
	return tokens / time
}

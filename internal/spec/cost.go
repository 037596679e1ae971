package spec

import "time"

// costs are what rounds take on this machine: the shape of it, and how fast the machine is
// just now. Another program that takes half of the machine for a minute makes everything
// slower, and what is then measured of one depth must not be compared with what was
// measured of another before. So the tables hold multiples of the level, which follows
// within a few rounds, while they learn slowly.
type costs struct {
	level     float64                         // seconds of what is 1 in the tables; 0: nothing is known
	rounds    int                             // passes reported
	disturbed bool                            // the last one had guesses
	verify    [maxRows + 1]average            // a pass over so many rows
	draft     [MaxDepth + 1][numSizes]average // a Draft call, by depth and number of runs
}

const (
	maxRows  = 160 // rounds with more rows are counted as that many
	numSizes = 5   // 1, 2, 3 or 4, 5 to 8, more runs

	costRate  = 0.01
	staleRate = 0.05 // at most
	levelRate = 0.3
	enough    = 16   // measurements that may correct another's
	settled   = 32   // measurements after which it is rather the machine that has changed than a cost that was wrong
	slope     = 0.03 // what a row is taken to add where nothing is known
)

// ObservePass reports a pass over so many rows, some of them guesses, none of a prompt, with the
// walk along its guesses. A pass after one with guesses finds the caches full of what the
// drafter needed, which is part of what guesses cost: as one without guesses it only counts
// if there was no other.
func (c *costs) ObservePass(rows, drafts int, took time.Duration) {
	disturbed := c.disturbed
	c.disturbed = drafts > 0
	a := &c.verify[min(max(rows, 0), maxRows)]
	if rows <= 0 || disturbed && drafts == 0 && a.n > 0 {
		return
	}
	x := max(took, 1).Seconds()
	if c.level == 0 {
		c.level = x
	}
	rate := levelRate * float64(a.n) / float64(a.n+settled)
	level := c.level
	if rate > 0 {
		c.level += rate * (clip(x/a.value, level) - level)
	}
	c.rounds++
	a.cost(x/level, c.rounds)
}

// ObserveDraft reports a Draft call. depths are how many tokens the network had to guess for
// each run; copies cost nothing and count as 0.
func (c *costs) ObserveDraft(depths []int, took time.Duration) {
	deepest, runs := 0, 0
	for _, d := range depths {
		deepest = max(deepest, d)
		if d > 0 {
			runs++
		}
	}
	if deepest == 0 {
		runs = len(depths)
	}
	if runs == 0 || c.level == 0 {
		return
	}
	deepest = min(deepest, MaxDepth)
	a, x := &c.draft[deepest][size(runs)], max(took, 1).Seconds()/c.level
	if like := c.draftCost(deepest, runs); a.n == 0 && like > 0 {
		// What is done for the first time finds no cache warm. If it seemed too dear it would
		// never be done again.
		x = min(x, 2*like)
	}
	a.cost(x, c.rounds)
}

// size is the column of the table for so many runs.
func size(runs int) int {
	s := 0
	for n := 1; n < runs && s < numSizes-1; n *= 2 {
		s++
	}
	return s
}

// verifyCost is a pass over so many rows, in levels: as measured, or between the nearest
// measured ones, or a little more than the nearest below, which is optimistic: what is
// cheap in hope gets tried, and then it is known. It is 0 if nothing is known. No pass costs
// more than one with a few rows more: where it seems to, it was measured at a worse moment,
// as the first passes are, before caches are warm.
func (c *costs) verifyCost(rows int) float64 {
	rows = min(rows, maxRows)
	cost := c.measured(rows)
	for r := rows + 1; r <= min(rows+MaxDepth, maxRows); r++ {
		if c.verify[r].n > enough {
			cost = min(cost, c.verify[r].value)
		}
	}
	return cost
}

// measured is a pass over so many rows by itself.
func (c *costs) measured(rows int) float64 {
	lo, hi := rows, rows
	for lo > 0 && c.verify[lo].n == 0 {
		lo--
	}
	for hi <= maxRows && c.verify[hi].n == 0 {
		hi++
	}
	switch {
	case lo == 0 && hi > maxRows:
		return 0
	case lo == 0:
		return c.verify[hi].value / (1 + slope*float64(hi-rows))
	case hi > maxRows:
		return c.verify[lo].value * (1 + slope*float64(rows-lo))
	case lo == hi:
		return c.verify[lo].value
	}
	at := float64(rows-lo) / float64(hi-lo)
	return c.verify[lo].value + at*(c.verify[hi].value-c.verify[lo].value)
}

// draftCost is a Draft call that guesses to a depth for so many runs, in levels; at depth 0
// one that only learns. A number of runs never seen is taken to cost what the
// nearest smaller one does, or else the nearest larger: guessing is bound by the weights,
// which are read once for all.
func (c *costs) draftCost(depth, runs int) float64 {
	at := size(max(runs, 1))
	for s := at; s >= 0; s-- {
		if d, ok := c.draftColumn(depth, s); ok {
			return d
		}
	}
	for s := at + 1; s < numSizes; s++ {
		if d, ok := c.draftColumn(depth, s); ok {
			return d
		}
	}
	return 0.2 * float64(depth) * c.verifyCost(1)
}

// draftColumn reads one column of the table, with gaps filled by lines through what is
// known; the line below the first known depth goes through nothing at depth 0.
func (c *costs) draftColumn(depth, s int) (levels float64, ok bool) {
	lo, hi := depth, depth
	for lo >= 0 && c.draft[lo][s].n == 0 {
		lo--
	}
	for hi <= MaxDepth && c.draft[hi][s].n == 0 {
		hi++
	}
	switch {
	case lo < 0 && hi > MaxDepth:
		return 0, false
	case lo == depth:
		return c.draft[depth][s].value, true
	case lo < 0:
		return c.draft[hi][s].value * float64(depth) / float64(hi), true
	case hi <= MaxDepth:
		at := float64(depth-lo) / float64(hi-lo)
		return c.draft[lo][s].value + at*(c.draft[hi][s].value-c.draft[lo][s].value), true
	case lo == 0: // only learning was ever measured
		return c.draft[0][s].value + 0.2*float64(depth)*c.verifyCost(1), true
	}
	return c.draft[lo][s].value * float64(depth) / float64(lo), true
}

// average forgets: it follows costs and texts that change.
type average struct {
	value float64
	n     int
	seen  int // of costs: the pass that the last one was of
}

// add takes in one observation. The first few count equally, later ones by rate.
func (a *average) add(x, rate float64) {
	a.n++
	a.value += (x - a.value) * max(rate, 1/float64(a.n))
}

// cost takes in a time. One much longer than usual says that the machine did something
// else meanwhile: it counts, since it may also be news, but not in full.
//
// What was last done long ago, on a machine that may have been slower than was known, counts
// the less the longer ago it was.
func (a *average) cost(x float64, pass int) {
	if a.n > 2 {
		x = clip(x, a.value)
	}
	rate := costRate * float64(pass-a.seen)
	a.seen = pass
	a.add(x, min(max(rate, costRate), staleRate))
}

// clip keeps x within a factor of two of what is usual.
func clip(x, usual float64) float64 { return min(max(x, usual/2), 2*usual) }

// blend is a prior that counts like so many observations, corrected by an average whose
// rate of forgetting says how many observations it can stand for at most.
func blend(prior, weight float64, a *average, rate float64) float64 {
	n := min(float64(a.n), 2/rate-1)
	return (prior*weight + a.value*n) / (weight + n)
}

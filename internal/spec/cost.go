package spec

import (
	"math"
	"time"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// costs are what rounds take on this machine: their shape, and how fast the machine is just
// now. Another program that takes half of the machine for a minute makes everything slower,
// and a depth measured then must not be compared with one measured before. So the shape is
// in multiples of the level, which follows within a few rounds.
type costs struct {
	level     float64               // seconds of what is 1 in the curves; 0: nothing is known
	disturbed bool                  // the last pass had drafts
	noise     [2]float64            // squares of how far passes were from what was known of their size, and how many, decaying
	last      int                   // rows of the last pass that was measured
	same      int                   // passes of that size before it, without others between
	pass      curve                 // of a pass, by rows
	fit       [maxRows + 1]estimate // of a pass, by all that was measured
	fitted    bool                  // nothing was measured since
	draft     [numSizes]curve       // of a Draft call, by depth, for a number of runs
}

const (
	maxRows  = 160 // passes with more rows count as that many
	numSizes = 5   // 1, 2, 3 or 4, 5 to 8, more runs

	costRate  = 0.01 // of the curves
	freshRate = 0.05 // of the first passes of a size after one of another size, as many as fresh
	fresh     = 3
	levelRate = 0.3
	settled   = 32 // measurements of a size after which no other size says more about it

	levelDoubt = 0.1 // about a size, with which half of levelRate applies
	jump       = 2.5 // how many times the usual error a pass must be off to show that the machine has changed

	usualNoise = 0.1 // of a measurement, before there are some
	maxNoise   = 0.3 // that counts: what is done for the first time is no noise
	noiseRate  = 0.05
	roughness  = 0.08 // variance of how far costs are off the line that is new where a size doubles

	// What is assumed before it is measured, in plain passes. It is optimistic, for what seems
	// cheap gets tried, and is then known.
	assumedRow   = 0.03
	assumedDraft = 0.2
)

// ObservePass reports a pass over a number of rows, drafts among them, none of a prompt. A
// plain pass after one with drafts finds the caches full of what the drafter needed, which is
// part of the cost of drafts: it counts only if there was no other. One that took 0 was not measured.
func (c *costs) ObservePass(rows, drafts int, took time.Duration) {
	disturbed := c.disturbed
	c.disturbed = drafts > 0
	rows = min(rows, maxRows)
	if rows <= 0 || took <= 0 || disturbed && drafts == 0 && c.pass.cells[rows].n > 0 {
		return
	}
	if c.same++; rows != c.last {
		c.last, c.same = rows, 0
	}
	x := took.Seconds()
	if c.level == 0 {
		c.level = x
	}
	if known := c.passFit(rows); c.pass.cells[rows].n > 0 {
		c.follow(x/c.level/known.cost, known.doubt)
	}
	rate := costRate
	if c.same < fresh {
		rate = freshRate
	}
	c.pass.add(rows, x/c.level, c.passCost(rows), rate)
	c.fitted = false
}

// follow has the level follow a pass that took off times what was expected. The better its size is known, the rather
// has the machine changed. Right after another size it may as well be the relation of the two that is wrong; while
// passes of one size go on, one that is far off shows a machine that is another now.
func (c *costs) follow(off, doubt float64) {
	log, rate := exactmath.Log(off), levelRate
	if c.same > 0 && log*log > jump*jump*c.variance() {
		rate = 1
	}
	c.level *= exactmath.Exp(log * rate * levelDoubt * levelDoubt / (levelDoubt*levelDoubt + doubt*doubt))
	log = min(max(log, -maxNoise), maxNoise)
	c.noise[0], c.noise[1] = c.noise[0]*(1-noiseRate)+log*log, c.noise[1]*(1-noiseRate)+1
}

// variance is the square of how far a measurement is off.
func (c *costs) variance() float64 {
	const prior = 2 // measurements that usualNoise counts like
	return (prior*usualNoise*usualNoise + c.noise[0]) / (prior + c.noise[1])
}

// enough is how many measurements tell what a size costs: as many as leave an error of usualNoise over the root of
// wellKnown.
func (c *costs) enough() int {
	return int(min(max(wellKnown*c.variance()/(usualNoise*usualNoise)+0.5, 2), wellKnown))
}

// ObserveDraft reports a Draft call. depths are how many tokens the head had to draft for each
// run; copies cost nothing and count as 0.
func (c *costs) ObserveDraft(depths []int, took time.Duration) {
	deepest, runs := 0, 0
	for _, d := range depths {
		if deepest = max(deepest, d); d > 0 {
			runs++
		}
	}
	if deepest == 0 {
		runs = len(depths)
	}
	if runs > 0 && c.level > 0 {
		deepest = min(deepest, MaxDepth)
		x, like := max(took, 1).Seconds()/c.level, c.draftCost(deepest, runs)
		if like > 0 {
			x = min(x, 2*like) // if it seemed too dear it would never be done again
		}
		c.draft[size(runs)].add(deepest, x, like, costRate)
	}
}

// size is the curve of a number of runs.
func size(runs int) int {
	s := 0
	for n := 1; n < runs && s < numSizes-1; n *= 2 {
		s++
	}
	return s
}

// passCost is the expected cost of a pass over rows, in levels; 0: nothing is known.
func (c *costs) passCost(rows int) float64 { return c.passFit(rows).cost }

// estimate is an expected cost, and the relative error that it may have.
type estimate struct{ cost, doubt float64 }

// passFit is what is known of a pass over rows.
func (c *costs) passFit(rows int) estimate {
	if !c.fitted {
		c.refit()
	}
	return c.fit[min(rows, maxRows)]
}

// refit estimates the costs of all sizes. One that was measured often costs what was measured. Of others a single bad
// moment must not decide: what was measured of them is weighed against what sizes below and above say. How far costs
// are off the line is taken to change by chance from row to row, so a size says the less of another the further that
// is. And no size costs less than a smaller one that was measured often, or more than a larger one.
func (c *costs) refit() {
	c.fitted = true
	if c.pass.sums[0] == 0 {
		return
	}
	a, b := c.pass.line(assumedRow)
	var sums, weights [maxRows + 1]float64 // of costs in relation to the line
	for _, down := range [...]bool{false, true} {
		sum, weight := 0.0, 0.0
		for i := 1; i <= maxRows; i++ {
			rows := i
			if down {
				rows = maxRows + 1 - i
			}
			decay := 1 / (1 + weight*roughness/float64(rows))
			sum, weight = sum*decay, weight*decay
			sums[rows], weights[rows] = sums[rows]+sum, weights[rows]+weight
			m := &c.pass.cells[rows]
			w := m.weight()
			sum, weight = sum+w*m.value/(a+b*float64(rows)), weight+w
		}
	}
	least, most := 0.0, math.Inf(1)
	for rows := 1; rows <= maxRows; rows++ {
		m := &c.pass.cells[rows]
		w := m.weight()
		total := weights[rows] + w
		cost := max((sums[rows]*(a+b*float64(rows))+w*m.value)/total, least)
		if m.n >= settled {
			cost, least = m.value, max(m.value, least)
		}
		c.fit[rows] = estimate{cost, 1 / math.Sqrt(total)}
	}
	for rows := maxRows; rows > 0; rows-- {
		if m := &c.pass.cells[rows]; m.n >= settled {
			most = min(most, m.value)
		} else {
			c.fit[rows].cost = min(c.fit[rows].cost, most)
		}
	}
}

// PassTime is the expected time of a pass over a number of rows, none of a prompt, in seconds; 0:
// nothing is known.
func (c *costs) PassTime(rows int) float64 {
	return c.level * c.passCost(rows) * max(1, float64(rows)/maxRows)
}

// draftCost is the cost of a Draft call of a depth for a number of runs, in levels; of depth 0,
// of one that only catches up. The first draft is taken to cost as much as each that follows. A
// number of runs never seen costs what the nearest one does: it is bound by the weights, which
// are read once for all.
func (c *costs) draftCost(depth, runs int) float64 {
	at := size(max(runs, 1))
	for d := range numSizes {
		for _, s := range [...]int{at - d, at + d} {
			if s >= 0 && s < numSizes && (c.draft[s].sums[0] > 0 || depth == 0 && c.draft[s].cells[0].n > 0) {
				return max(c.draft[s].at(depth, 1), 0)
			}
		}
	}
	return assumedDraft * float64(depth) * c.passCost(1)
}

// curve is a cost by size: as measured, and else on the line a + b·size through all that was
// measured.
type curve struct {
	cells [maxRows + 1]cell
	sums  [5]float64 // for the line, of sizes above 0, decaying: of 1, size, cost, size² and size·cost
}

type cell struct {
	value float64
	n     int
}

// weight is one over the variance of the cell. The first measurement hardly counts, and what was measured long ago
// does not count in full, however often that was.
func (m *cell) weight() float64 {
	n := float64(min(m.n-1, wellKnown))
	if m.n <= 1 {
		n = float64(m.n) / 4
	}
	return n / (usualNoise * usualNoise)
}

// add takes in a measurement, where so much was expected. What is done for the first time finds no cache warm: that
// it is dear is believed the second time, which counts in place of the first. A measurement far from what is usual
// says that the machine did something else meanwhile: it counts, since it may also be news, but not in full.
func (c *curve) add(size int, cost, expected, rate float64) {
	m := &c.cells[size]
	switch m.n++; {
	case m.n == 1:
		if expected > 0 {
			cost = min(cost, expected)
		}
		m.value = cost
	case m.n > 3:
		cost = m.value * clip(cost/m.value)
	}
	m.value *= power(cost/m.value, max(rate, 1/float64(max(m.n-1, 1))))
	if size == 0 {
		return // to catch up is another thing than to draft, and says nothing of what that costs
	}
	x := float64(size)
	for i, v := range [...]float64{1, x, cost, x * x, x * cost} {
		c.sums[i] += v - costRate*c.sums[i]
	}
}

// at is the cost of a size, on the line if it was not measured.
func (c *curve) at(size int, slope float64) float64 {
	if c.cells[size].n > 0 || c.sums[0] == 0 {
		return c.cells[size].value
	}
	a, b := c.line(slope)
	return a + b*float64(size)
}

// line is a and b of the line. slope is what a step of size is assumed to add, in relation to the mean cost, as long
// as too few sizes were measured to tell.
func (c *curve) line(slope float64) (a, b float64) {
	n := c.sums[0]
	x, y := c.sums[1]/n, c.sums[2]/n
	const prior = 0.1 // variance of sizes that the assumed slope counts like
	b = (c.sums[4]/n - x*y + prior*slope*y) / (c.sums[3]/n - x*x + prior)
	b = min(max(b, 0), y/max(x, 1)) // more costs more, and nothing does not cost less than nothing
	return y - b*x, b
}

// clip keeps a ratio within a factor of two.
func clip(x float64) float64 { return min(max(x, 0.5), 2) }

// power is x to the y: costs are averaged as ratios.
func power(x, y float64) float64 { return exactmath.Exp(y * exactmath.Log(x)) }

package spec

import (
	"time"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// costs are what rounds take on this machine: their shape, and how fast the machine is just
// now. Another program that takes half of the machine for a minute makes everything slower,
// and a depth measured then must not be compared with one measured before. So the shape is
// in multiples of the level, which follows within a few rounds.
type costs struct {
	level     float64         // seconds of what is 1 in the curves; 0: nothing is known
	disturbed bool            // the last pass had drafts
	noise     [2]float64      // squares of how far passes were from what was known of their size, and how many, decaying
	pass      curve           // of a pass, by rows
	draft     [numSizes]curve // of a Draft call, by depth, for a number of runs
}

const (
	maxRows  = 160 // passes with more rows count as that many
	numSizes = 5   // 1, 2, 3 or 4, 5 to 8, more runs

	costRate  = 0.01 // of the curves
	levelRate = 0.3
	settled   = 32 // measurements of a size after which half of levelRate applies

	usualNoise = 0.1 // of a measurement, before there are some
	maxNoise   = 0.3 // that counts: what is done for the first time is no noise
	noiseRate  = 0.05

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
	x := took.Seconds()
	if c.level == 0 {
		c.level = x
	}
	if known := &c.pass.cells[rows]; known.n > 0 { // the better it is known, the rather has the machine changed
		off := clip(x / c.level / known.value)
		c.level *= power(off, levelRate*float64(known.n)/float64(known.n+settled))
		off = min(max(exactmath.Log(off), -maxNoise), maxNoise)
		c.noise[0], c.noise[1] = c.noise[0]*(1-noiseRate)+off*off, c.noise[1]*(1-noiseRate)+1
	}
	c.pass.add(rows, x/c.level)
}

// enough is how many measurements tell what a size costs: as many as leave an error of usualNoise over the root of
// wellKnown.
func (c *costs) enough() int {
	const prior = 2 // measurements that usualNoise counts like
	square := (prior*usualNoise*usualNoise + c.noise[0]) / (prior + c.noise[1])
	return int(min(max(wellKnown*square/(usualNoise*usualNoise)+0.5, 2), wellKnown))
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
		x := max(took, 1).Seconds() / c.level
		if like := c.draftCost(deepest, runs); like > 0 {
			// What is done for the first time finds no cache warm. If it seemed too dear it would
			// never be done again.
			x = min(x, 2*like)
		}
		c.draft[size(runs)].add(deepest, x)
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

// passCost is the cost of a pass over rows, in levels; 0: nothing is known. No pass costs more
// than one with a few rows more: where it seems to, it was measured at a worse moment.
func (c *costs) passCost(rows int) float64 {
	rows = min(rows, maxRows)
	cost := c.pass.at(rows, assumedRow)
	for r := rows + 1; r <= min(rows+MaxDepth, maxRows); r++ {
		if c.pass.cells[r].n > settled/2 {
			cost = min(cost, c.pass.cells[r].value)
		}
	}
	return cost
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

// add takes in a measurement. One far from what is usual says that the machine did something
// else meanwhile: it counts, since it may also be news, but not in full.
func (c *curve) add(size int, cost float64) {
	m := &c.cells[size]
	if m.n > 2 {
		cost = m.value * clip(cost/m.value)
	}
	if m.n++; m.n == 1 {
		m.value = cost
	}
	m.value *= power(cost/m.value, max(costRate, 1/float64(m.n)))
	if size == 0 {
		return // to catch up is another thing than to draft, and says nothing of what that costs
	}
	x := float64(size)
	for i, v := range [...]float64{1, x, cost, x * x, x * cost} {
		c.sums[i] += v - costRate*c.sums[i]
	}
}

// at is the cost of a size. slope is what a step of size is assumed to add, in relation to the
// mean cost, as long as too few sizes were measured to tell.
func (c *curve) at(size int, slope float64) float64 {
	n := c.sums[0]
	if c.cells[size].n > 0 || n == 0 {
		return c.cells[size].value
	}
	x, y := c.sums[1]/n, c.sums[2]/n
	const prior = 0.1 // variance of sizes that the assumed slope counts like
	b := (c.sums[4]/n - x*y + prior*slope*y) / (c.sums[3]/n - x*x + prior)
	b = min(max(b, 0), y/max(x, 1)) // more costs more, and nothing does not cost less than nothing
	return y + b*(float64(size)-x)
}

// clip keeps a ratio within a factor of two.
func clip(x float64) float64 { return min(max(x, 0.5), 2) }

// power is x to the y: costs are averaged as ratios.
func power(x, y float64) float64 { return exactmath.Exp(y * exactmath.Log(x)) }

// Package cost estimates what rounds take on this machine: passes of the model by number of rows, rows of prompts,
// drafting by depth and number of runs. The depth controller and the scheduler read it.
//
// A time is the product of the current speed of the machine, which another program may halve for a minute, and a cost
// that hardly changes. The unit of cost is the level, the time of a pass over one row. A Kalman filter estimates the
// logarithms of the level and of the costs of some sizes together. So it knows what was measured in turn at the same
// speed, and how uncertain the relation of two sizes is.
package cost

import (
	"math"
	"time"

	"github.com/foretoken/foretoken/internal/exactmath"
)

const (
	exact   = 8 // passes over up to as many rows have a node each, then there are four nodes per octave
	octaves = 6 // up to 512 rows
	nodes   = exact + 4*octaves
	states  = 1 + nodes        // the level comes first
	maxRows = exact << octaves // the cost of passes with more rows is proportional to the rows

	// Before anything is measured, a row adds assumedRow of a pass over one row. This is optimistic, so larger passes
	// are tried. A row that adds likelyRow is one standard deviation off. The relation of two sizes, one of which
	// is twice the other, is off that line by roughness, because devices change kernels with the number of rows.
	assumedRow = 0.03
	likelyRow  = 0.2
	roughness  = 0.15

	// Noise is the relative variance of a measured time. The first pass of a size finds caches and memory cold.
	// A pass that is more than outlier standard deviations off is an accident or shows that the speed has changed.
	firstNoise = 0.25
	usualNoise = 0.01
	leastNoise = 1e-5 // the clock and the loop around a pass
	outlier    = 3

	// In each pass the variance of the level grows by drift of the noise: it follows within about ten passes. The
	// variance of every cost grows by age: 5 % in 1000 passes, as contexts become longer.
	drift = 0.01
	age   = 2.5e-6

	rate       = 0.05  // of means, per measurement
	leastRow   = 0.001 // cost of a row of a prompt
	promptRate = 0.01
)

// Model is the costs of one model and drafter on one device. Its zero value knows nothing. It belongs to one goroutine at a time.
type Model struct {
	pass     filter         // logarithms: of the level in seconds, and of the cost of a pass at each node
	draft    filter         // costs of drafting: of each run that catches up, of each step and of each draft token
	curve    [nodes]float64 // the cost of a pass at each node, monotone
	seen     [nodes]int     // measurements
	known    bool           // there is one
	noise    mean
	prompts  float64 // cost of rows of prompts, decaying
	prompted float64 // those rows, decaying
	rest     mean    // cost of a round without its pass
	drafting bool    // the drafter has drafted since the last pass
	drafted  bool    // the last pass followed drafting
}

// mean is an average that forgets.
type mean struct{ value, n float64 }

// add takes in a value. After the first it counts at most twice the mean, so a single disturbance does not decide.
func (m *mean) add(x float64) {
	if m.n > 0 {
		x = min(x, 2*m.value)
	}
	m.n = m.n*(1-rate) + 1
	m.value += (x - m.value) / m.n
}

// begin sets what is assumed before anything is measured.
func (m *Model) begin() {
	if m.pass.n > 0 {
		return
	}
	m.pass.n = states
	m.pass.p[0][0] = 100 // any level
	for i := range nodes {
		m.pass.x[1+i] = exactmath.Log(1 + assumedRow*(size(i)-1))
		for j := range nodes {
			a, b := size(i), size(j)
			steep := func(rows float64) float64 {
				return exactmath.Log((1 + likelyRow*(rows-1)) / (1 + assumedRow*(rows-1)))
			}
			m.pass.p[1+i][1+j] = steep(a)*steep(b) + roughness*roughness*exactmath.Log(min(a, b))/math.Ln2
		}
	}
	m.noise = mean{usualNoise, 4}
	// A step of a head is about a tenth of a pass, whatever the number of runs.
	m.draft.n = 3
	for i, x := range [...]float64{0, 0.15, 0.01} {
		m.draft.x[i], m.draft.p[i][i] = x, max(x*x, 1e-4)
	}
	m.fit()
}

// fit works the monotone curve out: the middle of the least one above all nodes and the greatest one below them.
func (m *Model) fit() {
	most := 0.0
	for i := range nodes {
		most = max(most, exactmath.Exp(m.pass.x[1+i]))
		m.curve[i] = most
	}
	least := math.Inf(1)
	for i := nodes - 1; i >= 0; i-- {
		least = min(least, exactmath.Exp(m.pass.x[1+i]))
		m.curve[i] = (m.curve[i] + least) / 2
	}
}

// size is the number of rows of a node.
func size(i int) float64 {
	if i < exact {
		return float64(i + 1)
	}
	octave, step := (i-exact)/4, (i-exact)%4+1
	base := exact << octave
	return float64(base) * (1 + float64(step)/4)
}

// node is the last node with at most so many rows, and how far they are on the way to the next one.
func node(rows int) (i int, way float64) {
	rows = min(max(rows, 1), maxRows)
	if rows <= exact {
		return rows - 1, 0
	}
	i, base := exact-1, exact
	for rows > 2*base {
		i, base = i+4, 2*base
	}
	steps := float64(rows-base) * 4 / float64(base)
	return i + int(steps), steps - float64(int(steps))
}

// nearest is the node with about so many rows.
func nearest(rows int) int {
	i, way := node(rows)
	return i + int(way+0.5)
}

// at is the pass over some rows as a sum of logarithms: the derivatives of the logarithm of its cost, which lies on a
// line between two nodes.
func (m *Model) at(rows int) sum {
	i, way := node(rows)
	j := min(i+1, nodes-1)
	a, b := (1-way)*m.curve[i], way*m.curve[j]
	return sum{{1 + i, a / (a + b)}, {1 + j, b / (a + b)}}
}

// ObservePass reports a pass over a number of rows, none of a prompt, of which some are drafts. took is 0 if it was not
// measured. A pass without drafts right after one with drafts takes up to 1.2 times as long, because the
// drafter has evicted the caches. That is part of the cost of drafts, so it does not count.
func (m *Model) ObservePass(rows, drafts int, took time.Duration) {
	m.begin()
	disturbed := m.drafted || m.drafting
	m.drafted, m.drafting = drafts > 0 || m.drafting, false
	if rows <= 0 || took <= 0 || disturbed && drafts == 0 && m.Measured(rows) > 0 {
		return
	}
	i, way := node(rows)
	h := m.at(rows)
	h[2] = term{0, 1}
	cost := (1-way)*exactmath.Exp(m.pass.x[1+i]) + way*exactmath.Exp(m.pass.x[1+min(i+1, nodes-1)])
	noise := m.noise.value
	m.pass.p[0][0] += drift * noise
	m.pass.fade(2, age)
	at := nearest(rows)
	if m.seen[at]++; m.seen[at] == 1 {
		noise = firstNoise
	}
	off := exactmath.Log(took.Seconds()) - exactmath.Log(cost) - m.pass.x[0]
	total := m.pass.variance(&h) + noise
	far := off*off > outlier*outlier*total
	if m.seen[at] > 1 {
		m.noise.add(max(min(off*off/total, outlier*outlier)*noise, leastNoise))
	}
	if far { // if the speed has changed the next pass shows it
		m.pass.p[0][0] += off * off
		return
	}
	m.known = true
	m.pass.update(&h, off, noise)
	m.fit()
}

// ObservePrompt reports a pass with rows of prompts beside others.
func (m *Model) ObservePrompt(rows, prompt int, took time.Duration) {
	m.begin()
	if rows == 0 {
		rows, prompt = 1, prompt-1
	}
	if prompt <= 0 || took <= 0 {
		return
	}
	if !m.Known() { // until a pass without prompts is measured
		m.pass.x[0], m.pass.p[0][0] = exactmath.Log(took.Seconds()/(1+assumedRow*float64(prompt))), 1
	}
	n, more := float64(prompt), took.Seconds()/m.Level()-m.Pass(rows)
	if m.prompted > 0 { // a single disturbance does not decide
		more = min(more, 2*m.promptRow()*n+m.Pass(rows)/4)
	}
	m.prompts, m.prompted = m.prompts*(1-promptRate)+more, m.prompted*(1-promptRate)+n
}

// ObserveRest reports what a round without prompts took beside its pass.
func (m *Model) ObserveRest(took time.Duration) {
	if m.Known() {
		m.rest.add(max(took.Seconds(), 0) / m.Level())
	}
}

// ObserveDraft reports a call of the drafter. depths are how many tokens a head had to draft for each run; copies cost
// nothing and count as 0. A first call is slow. It counts twice what is expected at most, because a depth that seems
// too expensive is never tried again.
func (m *Model) ObserveDraft(depths []int, took time.Duration) {
	deepest, total := 0, 0
	for _, d := range depths {
		deepest, total = max(deepest, d), total+max(d, 0)
	}
	m.drafting = m.drafting || deepest > 0
	if len(depths) == 0 || !m.Known() {
		return
	}
	h := drafting(deepest, total, len(depths))
	expected := max(m.draft.value(&h), 1e-3)
	x := min(max(took.Seconds()/m.Level(), expected/2), 2*expected)
	m.draft.fade(0, age)
	m.draft.update(&h, x-m.draft.value(&h), max(m.noise.value, usualNoise)*expected*expected)
}

// drafting is a call of the drafter. To catch up is another thing than to draft, and says nothing of what that costs.
func drafting(deepest, total, runs int) sum {
	if deepest == 0 {
		return sum{{0, float64(runs)}}
	}
	return sum{{1, float64(deepest)}, {2, float64(total)}}
}

// Known reports whether a pass without prompts was measured.
func (m *Model) Known() bool { return m.known }

// Measured is how often a pass of about so many rows was measured.
func (m *Model) Measured(rows int) int { return m.seen[nearest(rows)] }

// Level is the time of a pass over one row, in seconds; 0: not known.
func (m *Model) Level() float64 {
	if m.pass.n == 0 {
		return 0
	}
	return exactmath.Exp(m.pass.x[0])
}

// Pass is the cost of a pass over a number of rows, none of a prompt, in levels. It never falls with the rows.
func (m *Model) Pass(rows int) float64 {
	m.begin()
	i, way := node(rows)
	a, b := m.curve[i], m.curve[min(i+1, nodes-1)]
	return (a + way*(b-a)) * max(1, float64(rows)/maxRows)
}

// Doubt is the relative standard deviation of the relation of passes over a and b rows.
func (m *Model) Doubt(a, b int) float64 {
	m.begin()
	h := m.at(a)
	for k, t := range m.at(b) {
		if k < 2 {
			h[2+k] = term{t.i, -t.w}
		}
	}
	return math.Sqrt(m.pass.variance(&h))
}

// Draft is the cost of a call of the drafter for a number of runs, in levels: deepest is the greatest depth, total the
// sum of all. With depth 0 it only catches up.
func (m *Model) Draft(deepest, total, runs int) float64 {
	m.begin()
	h := drafting(deepest, total, runs)
	return max(m.draft.value(&h), 0)
}

// Time is the expected time of a pass over a number of rows, of which some are of prompts, in seconds; 0: not known.
func (m *Model) Time(rows, prompt int) float64 {
	if !m.Known() || rows+prompt == 0 {
		return 0
	}
	n := max(rows, 1)
	return m.Level() * (m.Pass(n) + float64(rows+prompt-n)*m.promptRow())
}

// PromptRow is the time that a row of a prompt adds to a pass, in seconds; 0: not known.
func (m *Model) PromptRow() float64 {
	if m.prompted == 0 {
		return 0
	}
	return m.promptRow() * m.Level()
}

func (m *Model) promptRow() float64 {
	if m.prompted == 0 {
		return assumedRow
	}
	return max(m.prompts/m.prompted, leastRow)
}

// Rest is the time of a round beside its pass, in seconds.
func (m *Model) Rest() float64 { return m.rest.value * m.Level() }

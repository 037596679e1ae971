// Package cost estimates the times of rounds on this machine: passes of the model by number of rows, rows of prompts, drafting by depth and
// number of runs. The depth controller and the scheduler read it.
//
// A time is the product of the current speed of the machine, which another program may halve for a minute, and a cost that hardly changes.
// The unit of cost is the level, the time of a pass over one row. A Kalman filter estimates the logarithms of the level and of the costs of
// some sizes together. So it knows which sizes were measured at the same speed, and how uncertain the ratio of two sizes is.
package cost

import (
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// sizes are the numbers of rows of a pass whose costs are estimated. The costs of others lie on lines between them, and
// larger passes cost in proportion to their rows. Devices change kernels at powers of two.
var sizes = [...]int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}

const (
	states = 2 + len(sizes) // the level comes first, the factor of passes after others last

	// Before anything is measured, a row adds assumedRow of a pass over one row. This is optimistic, so larger passes
	// are tried. If a prompt was measured before, its rows replace assumedRow, but not beyond likelyRow. A row that adds likelyRow
	// is one standard deviation off. The relation of two neighboring sizes is off that line by roughness, because devices change
	// kernels with the number of rows.
	assumedRow = 0.05
	likelyRow  = 0.3
	roughness  = 0.08

	// Noise is the relative variance of a measured time, and noiseRate how fast its mean follows. The n-th pass of a size has 1/n²
	// more: the first ones find caches cold and graphs not uploaded. A pass that is more than outlier standard deviations off is an
	// accident or shows that the speed has changed.
	usualNoise = 0.01
	leastNoise = 1e-5 // the clock, and the loop around a pass
	noiseRate  = 0.1
	outlier    = 3

	// In each pass the variance of the level grows by drift of the noise: it follows within about ten passes. The
	// variance of every cost grows by age, 5 % in 1000 passes: a server that runs for days must still learn.
	drift = 0.01
	age   = 2.5e-6

	// How much longer passes after others may take, one standard deviation. With 0.05, the first trials of a process cannot tell this factor
	// from the cost of plain passes. It ages five times as fast as a cost, because it depends on the passes before.
	likelyAfter = 0.03

	promptRate = 0.01 // at which prompts are forgotten
)

// Drafters is the maximum number of drafters that compute drafts.
const Drafters = 2

// The costs besides those of passes: four of each drafter, and the rest.
const (
	call  = iota // a call of the first drafter
	step         // a step of it
	draft        // a draft token of it, beside the steps
	feed         // a row that it was not fed at once
	each         // costs of a drafter
	rest  = each * Drafters
)

// Model is the costs of one model and drafter on one device. Its zero value knows nothing. It belongs to one goroutine
// at a time.
type Model struct {
	pass   filter              // logarithms: of the level in seconds, and of the cost of a pass of each size
	other  filter              // costs beside passes
	curve  [len(sizes)]float64 // the cost of a pass of each size, monotone
	seen   [len(sizes)]int     // measurements
	noise  float64
	prompt [2]float64 // cost of rows of prompts, and their number, decaying
	known  bool       // a pass was measured
}

// begin sets the assumptions before any measurement.
func (m *Model) begin() {
	if m.noise > 0 {
		return
	}
	m.noise = usualNoise
	m.pass.p[0][0] = 100 // any level
	for i, a := range sizes {
		for j, b := range sizes {
			m.pass.p[1+i][1+j] = (line(a, likelyRow)-line(a, assumedRow))*(line(b, likelyRow)-line(b, assumedRow)) +
				roughness*roughness*float64(min(i, j))
		}
	}
	m.pass.p[states-1][states-1] = likelyAfter * likelyAfter
	for i, x := range [...]float64{0.05, 0.15, 0.03, 0.01, 0.05, 0.15, 0.03, 0.01, rest: 0} {
		m.other.x[i], m.other.p[i][i] = x, max(x*x, 2.5e-3)
	}
	m.assume(assumedRow)
}

// line is the logarithm of the cost of a pass if each row after the first adds row.
func line(rows int, row float64) float64 { return exactmath.Log(1 + row*float64(rows-1)) }

// assume sets the costs of passes to a line.
func (m *Model) assume(row float64) {
	for i, a := range sizes {
		m.pass.x[1+i] = line(a, row)
	}
	m.fit()
}

// fit computes the monotone curve: a pass costs at least as much as those over fewer rows.
func (m *Model) fit() {
	most := 0.0
	for i := range sizes {
		most = max(most, exactmath.Exp(m.pass.x[1+i]))
		m.curve[i] = most
	}
}

// at is the sizes i and j around a number of rows, and how far it is on the way from i to j.
func at(rows int) (i, j int, way float64) {
	j, ok := slices.BinarySearch(sizes[:], max(rows, 1))
	if j = min(j, len(sizes)-1); ok || rows > sizes[j] {
		return j, j, 0
	}
	return j - 1, j, float64(rows-sizes[j-1]) / float64(sizes[j]-sizes[j-1])
}

// logarithm is that of the cost of a pass as a sum: of its derivatives by the logarithms of the sizes around it.
func (m *Model) logarithm(rows int) sum {
	i, j, way := at(rows)
	a, b := (1-way)*m.curve[i], way*m.curve[j]
	return sum{{1 + i, a / (a + b)}, {1 + j, b / (a + b)}}
}

// ObservePass reports a pass over a number of rows, none of a prompt. after is 1 if it came soon after passes over more rows, else 0: it
// then takes longer by a factor, which is estimated by itself. took is 0 if it was not measured.
func (m *Model) ObservePass(rows int, after float64, took time.Duration) {
	m.begin()
	if rows <= 0 || took <= 0 {
		return
	}
	if !m.known && m.prompt[1] > 0 { // a row of a pass takes as long as one of a prompt
		row := m.PromptRow()
		m.assume(min(max(row/max(took.Seconds()-row*float64(rows-1), row), assumedRow), likelyRow))
		m.prompt[0] = m.prompt[1] * row * m.Pass(rows) / took.Seconds()
	}
	i, _, _ := at(rows)
	m.seen[i]++
	m.pass.p[0][0] += drift * m.noise
	for j := 2; j < states; j++ {
		m.pass.p[j][j] += age
	}
	m.pass.p[states-1][states-1] += 4 * age
	h := m.logarithm(rows)
	h[2], h[3] = term{0, 1}, term{states - 1, after}
	off := exactmath.Log(took.Seconds()/m.Pass(rows)) - m.pass.x[0] - after*m.pass.x[states-1]
	noise := m.noise + 1/float64(m.seen[i]*m.seen[i])
	far := off * off / (m.pass.covariance(&h, &h) + m.noise)
	m.noise += noiseRate * (max(min(far, outlier*outlier)*m.noise, leastNoise) - m.noise)
	if m.known = true; far > outlier*outlier {
		m.pass.p[0][0] += off * off // if the speed has changed the next pass shows it
		return
	}
	m.pass.update(&h, off, noise)
	m.fit()
}

// observe adds a measured sum of costs. It counts for at most twice the expected value: what seems too expensive once
// would never be tried again.
func (m *Model) observe(h sum, took time.Duration) {
	value := m.other.value(&h)
	expected := max(value, 0.02)
	noise := max(m.noise, usualNoise)
	for i, x := range m.other.x {
		m.other.p[i][i] += drift * noise * x * x
	}
	m.other.update(&h, min(max(took.Seconds()/m.Level(), 0), 2*expected)-value, noise*expected*expected)
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
	if !m.known { // any level fits, until a pass without prompts is measured
		m.pass.x[0] = exactmath.Log(took.Seconds() / (1 + assumedRow*float64(prompt)))
	}
	more := took.Seconds()/exactmath.Exp(m.pass.x[0]) - m.Pass(rows)
	if m.prompt[1] > 0 { // a single disturbance does not decide
		more = min(more, 2*float64(prompt)*m.promptRow()+m.Pass(rows)/4)
	}
	m.prompt[0], m.prompt[1] = m.prompt[0]*(1-promptRate)+more, m.prompt[1]*(1-promptRate)+float64(prompt)
}

// promptRow is the cost of a row of a prompt.
func (m *Model) promptRow() float64 {
	if m.prompt[1] == 0 {
		return assumedRow
	}
	return max(m.prompt[0]/m.prompt[1], assumedRow/100)
}

// ObserveRest reports the time of a round without prompts besides its pass.
func (m *Model) ObserveRest(took time.Duration) {
	if m.known {
		m.observe(sum{{rest, 1}}, took)
	}
}

// ObserveDraft reports a call of a drafter, the first is 0: its steps, the tokens that it has drafted for all runs, and the rows that
// it was fed late.
func (m *Model) ObserveDraft(drafter, steps, total, fed int, took time.Duration) {
	if steps > 0 && m.known {
		m.observe(drafting(drafter, steps, total, float64(fed)), took)
	}
}

// drafting is a call of a drafter.
func drafting(drafter, steps, total int, fed float64) sum {
	d := each * drafter
	return sum{{d + call, float64(min(steps, 1))}, {d + step, float64(steps)}, {d + draft, float64(total)}, {d + feed, fed}}
}

// Known reports whether a pass without prompts was measured.
func (m *Model) Known() bool { return m.known }

// Measured is how often a pass of about rows rows was measured.
func (m *Model) Measured(rows int) int {
	i, _, _ := at(rows)
	return m.seen[i]
}

// Level is the time of a pass over one row, in seconds; 0: not known.
func (m *Model) Level() float64 {
	if !m.known && m.prompt[1] == 0 {
		return 0
	}
	return exactmath.Exp(m.pass.x[0])
}

// Pass is the cost of a pass over a number of rows, none of a prompt, in levels. It never falls with the rows.
func (m *Model) Pass(rows int) float64 {
	m.begin()
	i, j, way := at(rows)
	return (m.curve[i] + way*(m.curve[j]-m.curve[i])) * max(1, float64(rows)/float64(sizes[len(sizes)-1]))
}

// Estimated reports whether the cost of a pass over a number of rows is estimated by itself.
func (m *Model) Estimated(rows int) bool { return slices.Contains(sizes[:], rows) }

// Surprise is the standard deviation of what n more passes over a rows would change in the relation of passes over a and b rows. after is
// 1 if they come soon after passes over more rows: they then show the relation and the factor together.
func (m *Model) Surprise(a, b, n int, after float64) float64 {
	m.begin()
	h, other := m.logarithm(a), m.logarithm(b)
	h[2], h[3] = term{other[0].i, -other[0].w}, term{other[1].i, -other[1].w}
	shown := h
	shown[4] = term{states - 1, after}
	return math.Abs(m.pass.covariance(&h, &shown)) / math.Sqrt(m.pass.covariance(&shown, &shown)+m.noise/float64(n))
}

// Draft is the cost of a call of a drafter, in levels, with a number of steps, total tokens, and rows that it is fed late. A
// drafter that neither drafts nor is fed late costs nothing: it is soon not fed.
func (m *Model) Draft(drafter, steps, total int, fed float64) float64 {
	m.begin()
	h := drafting(drafter, steps, total, fed)
	return max(m.other.value(&h), 0)
}

// Time is the expected time of a pass over rows of texts and of prompts, in seconds; 0: not known.
func (m *Model) Time(rows, prompt int) float64 {
	if !m.known || rows+prompt == 0 {
		return 0
	}
	n := max(rows, 1)
	return m.Level()*m.Pass(n) + float64(rows+prompt-n)*m.PromptRow()
}

// PromptRow is the time that a row of a prompt adds to a pass, in seconds; 0: not known.
func (m *Model) PromptRow() float64 { return m.Level() * m.promptRow() }

// Rest is the time of a round beside its pass, in seconds.
func (m *Model) Rest() float64 { return m.Level() * max(m.other.x[rest], 0) }

package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// points is a cost by rows through pairs of rows and cost, with lines between them, the last one beyond.
func points(p ...float64) func(int) float64 {
	return func(rows int) float64 {
		x := float64(rows)
		i := 0
		for i+4 < len(p) && x > p[i+2] {
			i += 2
		}
		return 10 * (p[i+1] + (x-p[i])*(p[i+3]-p[i+1])/(p[i+2]-p[i]))
	}
}

// stairs is points in which sizes between two cost what the larger one does.
func stairs(p ...float64) func(int) float64 {
	line := points(p...)
	return func(rows int) float64 {
		for i := 0; i < len(p); i += 2 {
			if float64(rows) <= p[i] {
				return 10 * p[i+1]
			}
		}
		return line(rows)
	}
}

// disturbance is what makes a machine hard to measure.
type disturbance struct {
	noise float64 // relative, of each measurement
	busy  float64 // how much slower all is at times, for 20 rounds or so
	first float64 // how much slower what is done for the first time is
}

// machine is a world with disturbances.
type machine struct {
	world
	disturbance
	rng  *rand.Rand
	left int // rounds until it becomes busy, or is no longer
	slow bool
	seen map[[2]int]bool
}

// newMachine is a machine with a controller that has decoded one sequence without drafts.
func newMachine(w world, d disturbance, seed, stream uint64) (*machine, *Controller) {
	m := &machine{world: w, disturbance: d, rng: rand.New(rand.NewPCG(seed, stream)), seen: map[[2]int]bool{}}
	c := NewController()
	m.answer(c, 1, 100, DepthOff, nil)
	return m, c
}

// turn begins a round and says how much slower it is.
func (m *machine) turn() float64 {
	if m.busy <= 1 {
		return 1
	}
	if m.left--; m.left <= 0 {
		m.slow = !m.slow
		if m.left = 1 + int(20*m.rng.ExpFloat64()); !m.slow {
			m.left *= 3
		}
	}
	if m.slow {
		return m.busy
	}
	return 1
}

// took is what something takes, and what is measured.
func (m *machine) took(what, size int, ms, slower float64) (real float64, measured time.Duration) {
	if key := [2]int{what, size}; !m.seen[key] {
		m.seen[key] = true
		ms *= max(m.first, 1)
	}
	return ms, time.Duration(ms * slower * math.Exp(m.disturbance.noise*m.rng.NormFloat64()) * 1e6)
}

// answer has n sequences say a number of tokens each. each is told what the rounds of all of them gave, and took in
// a machine that is not busy.
func (m *machine) answer(c *Controller, n, length int, depth Depth, each func(tokens, ms float64)) {
	records, made := make([]*Record, n), make([]int, n)
	for i := range records {
		records[i] = &Record{Fixed: depth}
	}
	for len(records) > 0 {
		batch := make([]Run, len(records))
		for i := range batch {
			batch[i] = Run{Depth: max(min(MaxDepth, length-made[i]-1), 0), Sources: Computed.only()}
		}
		c.Choose(batch, records)
		ms := m.round(c, batch)
		tokens := 0
		for i, r := range batch {
			accepted := 0
			for accepted < r.Depth && m.rng.Float64() < chance(m.accepts(i, r.Source), accepted) {
				accepted++
			}
			c.Report(records[i], Outcome{Drafted: r.Depth, Accepted: accepted, Tokens: 1 + accepted})
			made[i] += 1 + accepted
			tokens += 1 + accepted
		}
		if each != nil && len(batch) == n {
			each(float64(tokens), ms)
		}
		for i := len(records) - 1; i >= 0; i-- {
			if made[i] >= length {
				records, made = slices.Delete(records, i, i+1), slices.Delete(made, i, i+1)
			}
		}
	}
}

// round has the controller see what drafting and the pass take, and returns the time.
func (m *machine) round(c *Controller, batch []Run) float64 {
	rows, runs, depths := len(batch), 0, make([]int, len(batch))
	for i, r := range batch {
		depths[i] = r.Depth
		if rows += r.Depth; r.Depth > 0 {
			runs++
		}
	}
	slower, ms := m.turn(), 0.0
	if deepest := slices.Max(depths); deepest > 0 {
		real, measured := m.took(runs, deepest, m.draft(deepest, runs), slower)
		c.ObserveDraft(depths, measured)
		ms += real
	}
	real, measured := m.took(0, rows, m.verify(rows), slower)
	c.ObservePass(rows, measured)
	return ms + real
}

// bestFixed is the depth that gives n sequences the most tokens per millisecond, and how many that are.
func (w *world) bestFixed(n int) (best int, rate float64) {
	for d := range MaxDepth + 1 {
		if x := w.expected(slices.Repeat([]int{d}, n)...); x > rate {
			best, rate = d, x
		}
	}
	return best, rate
}

// TestBatchesSettleOnTheirDepth has batches on machines that are hard to measure, and the same batches without
// drafts between them: after 200 rounds they have nearly what the best fixed depth gives, and where drafts do not pay nearly
// all of what plain decoding gives.
func TestBatchesSettleOnTheirDepth(t *testing.T) {
	gpu := stairs(1, 1, 2, 1.1, 4, 1.28, 8, 1.38, 16, 1.75, 32, 2.45, 64, 3.85, 128, 6.7)
	cpu := points(1, 1, 2, 1.12, 4, 1.28, 7, 1.56, 8, 1.84, 9, 1.58, 12, 1.84, 16, 2.2, 24, 2.55, 32, 3.3, 48, 4.4) // another kernel from nine rows on
	slower := func(d, runs int) float64 { return 1.1 * float64(d) * (0.8 + 0.2*float64(runs)) }
	good, bad := alike(0.708, 0.735, 0.744), alike(0.1)
	for _, x := range []struct {
		name string
		n    int
		world
		disturbance
		mean, least float64
	}{
		{"the first of a size is slow", 2, world{verify: linear(0.05), draft: head(0.15, 0), accepts: good}, disturbance{0.01, 1, 3}, 0.97, 0.93},
		{"the first of a size is slow, in steps", 4, world{verify: gpu, draft: head(0.08, 0), accepts: good}, disturbance{0.01, 1, 3}, 0.93, 0.88},
		{"busy at times, with another kernel", 8, world{verify: cpu, draft: slower, accepts: good}, disturbance{0.05, 1.45, 1}, 0.95, 0.9},
		{"all of it", 8, world{verify: cpu, draft: slower, accepts: good}, disturbance{0.1, 1.45, 2}, 0.95, 0.9},
		{"drafts that are wrong", 1, world{verify: cpu, draft: slower, accepts: bad}, disturbance{0.05, 1.45, 1}, 0.985, 0.98},
		{"drafts that are wrong, in steps", 8, world{verify: gpu, draft: head(0.1, 0), accepts: bad}, disturbance{0.1, 1.45, 2}, 0.985, 0.98},
	} {
		t.Run(x.name, func(t *testing.T) {
			const seeds, early, late = 8, 200, 400
			best, rate := x.bestFixed(x.n)
			mean, least := 0.0, math.Inf(1)
			for seed := range uint64(seeds) {
				m, c := newMachine(x.world, x.disturbance, seed, 23)
				tokens, ms := 0.0, 0.0
				for rounds := 0; rounds < early+late; {
					m.answer(c, x.n, 190, DepthAuto, func(n, took float64) {
						if rounds++; rounds > early {
							tokens, ms = tokens+n, ms+took
						}
					})
					m.answer(c, x.n, 190, DepthOff, nil)
				}
				mean += tokens / ms / rate / seeds
				least = min(least, tokens/ms/rate)
			}
			t.Logf("%.3f of the rate at depth %d, %.3f at least", mean, best, least)
			if mean < x.mean || least < x.least {
				t.Errorf("%.3f of the rate at depth %d, want %v; %.3f at least, want %v", mean, best, x.mean, least, x.least)
			}
		})
	}
}

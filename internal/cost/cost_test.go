package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func ms(x float64) time.Duration { return time.Duration(x * 1e6) }

// near reports a value that is off by more than a part.
func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if math.Abs(got-want) > off*math.Abs(want) {
		t.Errorf("%s: %.6g, want %.6g", what, got, want)
	}
}

// TestSizes checks the sizes around every number of rows.
func TestSizes(t *testing.T) {
	last := sizes[len(sizes)-1]
	for rows := 1; rows <= last; rows++ {
		i, j, way := at(rows)
		a, b := float64(sizes[i]), float64(sizes[j])
		near(t, "rows", a+way*(b-a), float64(rows), 1e-12)
		if j > i+1 || way < 0 || way >= 1 {
			t.Errorf("%d rows are between %v and %v", rows, a, b)
		}
	}
	for rows, want := range map[int]int{-1: 0, 0: 0, last: len(sizes) - 1, last + 1: len(sizes) - 1} {
		if i, j, way := at(rows); i != want || j != want || way != 0 {
			t.Errorf("%d rows are %v of the way from size %d to %d", rows, way, i, j)
		}
	}
}

// TestPassesOnALine measures a few sizes of a machine whose passes take a + b·rows: all others lie on the line.
func TestPassesOnALine(t *testing.T) {
	line := func(rows int) float64 { return 10 * (1 + 0.1*float64(rows-1)) }
	var m Model
	for range 50 {
		for _, rows := range []int{1, 4, 8, 40} {
			m.ObservePass(rows, 0, ms(line(rows)))
		}
	}
	for rows := 1; rows <= 60; rows++ {
		near(t, "seconds of a pass", 1e3*m.Time(rows, 0), line(rows), 0.04)
	}
	near(t, "seconds of a pass beyond all nodes", m.Pass(2*512), 2*m.Pass(512), 1e-12)
}

// TestCurveIsMonotone reports random times.
func TestCurveIsMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var m Model
		for range 200 {
			m.ObservePass(1+rng.IntN(100), 0, ms(math.Exp(rng.NormFloat64())))
		}
		for rows := 2; rows < 700; rows++ {
			if m.Pass(rows) < m.Pass(rows-1) || m.Pass(1) <= 0 {
				t.Fatalf("a pass over %d rows costs %v, over one less %v", rows, m.Pass(rows), m.Pass(rows-1))
			}
		}
	}
}

// measured is a model that has seen alternating passes over 1, 2 and 4 rows, with noise.
func measured(rng *rand.Rand, rounds int, noise, speed float64) *Model {
	m := new(Model)
	for range rounds {
		for _, rows := range []int{1, 2, 4} {
			m.ObservePass(rows, 0, ms(speed*(9+float64(rows))*math.Exp(noise*rng.NormFloat64())))
		}
	}
	return m
}

// TestSpeedIsNotShape has a machine become five times slower: times follow within a few passes of one size, and
// the relations of sizes stay.
func TestSpeedIsNotShape(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	m := measured(rng, 40, 0.05, 1)
	before := m.Pass(4)
	for range 4 {
		m.ObservePass(2, 0, ms(5*11))
	}
	near(t, "seconds of another size", 1e3*m.Time(4, 0), 5*13, 0.1)
	near(t, "cost of another size", m.Pass(4), before, 0.02)
}

// TestAccidentsDoNotCount has a single pass take ten times as long.
func TestAccidentsDoNotCount(t *testing.T) {
	m := measured(rand.New(rand.NewPCG(5, 6)), 40, 0.05, 1)
	before, level := m.Pass(2), m.Level()
	m.ObservePass(2, 0, ms(110))
	near(t, "cost", m.Pass(2), before, 0.001)
	near(t, "level", m.Level(), level, 0.001)
	m.ObservePass(2, 0, ms(11))
	near(t, "level after it", m.Level(), level, 0.1)
}

// TestPassesAfterOthersHaveAFactor has passes over two rows take 1.2 times as long soon after passes over four. Steady ones show that,
// then one after others tells the same as a steady one.
func TestPassesAfterOthersHaveAFactor(t *testing.T) {
	m := measured(rand.New(rand.NewPCG(9, 10)), 40, 0.02, 1)
	for range 40 {
		m.ObservePass(4, 0, ms(13))
		m.ObservePass(2, 1, ms(1.2*11))
		m.ObservePass(2, 0, ms(11))
	}
	near(t, "cost of two rows over four", m.Pass(2)/m.Pass(4), 11.0/13, 0.01)
	level := m.Level()
	for range 20 {
		m.ObservePass(2, 1, ms(1.2*11))
	}
	near(t, "level", m.Level(), level, 0.01)
	near(t, "cost after passes after others", m.Pass(2)/m.Pass(4), 11.0/13, 0.02)
}

// TestFirstPassOfASizeHardlyCounts has it take three times as long as later ones.
func TestFirstPassOfASizeHardlyCounts(t *testing.T) {
	m := measured(rand.New(rand.NewPCG(7, 8)), 40, 0.02, 1)
	m.ObservePass(6, 0, ms(45))
	if x := m.Pass(6) / m.Pass(1); x > 2 {
		t.Errorf("%v after the first", x)
	}
	for range 3 {
		m.ObservePass(6, 0, ms(15))
		m.ObservePass(1, 0, ms(10))
	}
	near(t, "cost", m.Pass(6)/m.Pass(1), 1.5, 0.06)
}

// observeDraft reports a call of the first drafter, with these depths.
func observeDraft(m *Model, depths []int, took time.Duration) {
	deepest, total := 0, 0
	for _, d := range depths {
		deepest, total = max(deepest, d), total+max(d, 0)
	}
	m.ObserveDraft(0, deepest, total, 0, took)
}

// TestDraftsOnAPlane has drafting cost something per step and token. A call without drafts does not count.
func TestDraftsOnAPlane(t *testing.T) {
	cost := func(depths ...int) float64 {
		deepest, total := 0, 0
		for _, d := range depths {
			deepest, total = max(deepest, d), total+d
		}
		if deepest == 0 {
			return 0.2 * float64(len(depths))
		}
		return 0.4*float64(deepest) + 0.3*float64(total)
	}
	m := measured(rand.New(rand.NewPCG(9, 10)), 20, 0, 1)
	for range 60 {
		for _, depths := range [][]int{{1}, {3}, {0}, {2, 2, 2, 2}, {1, 0, 0, 4}, {0, 0, 0}} {
			observeDraft(m, depths, ms(cost(depths...)))
		}
	}
	near(t, "no draft", m.Draft(0, 0, 0, 0), 0, 0)
	near(t, "one run", 10*m.Draft(0, 2, 2, 0), cost(2), 0.1)
	near(t, "runs of one depth", 10*m.Draft(0, 3, 9, 0), cost(3, 3, 3), 0.1)
	near(t, "runs of some depths", 10*m.Draft(0, 4, 7, 0), cost(4, 2, 1), 0.1)
	near(t, "another drafter", m.Draft(1, 2, 4, 0), 0.47, 1e-9)
	for range 60 {
		m.ObserveDraft(1, 1, 4, 0, ms(2))
		m.ObserveDraft(1, 1, 16, 0, ms(4.4))
	}
	near(t, "another drafter, measured", 10*m.Draft(1, 1, 8, 0), 2.8, 0.1)
	near(t, "the first one then", 10*m.Draft(0, 2, 2, 0), cost(2), 0.1)
}

// TestRowsFedLate has calls of both drafters, some of which feed rows first: their cost is told apart.
func TestRowsFedLate(t *testing.T) {
	m := measured(rand.New(rand.NewPCG(9, 10)), 20, 0, 1)
	for range 60 {
		for drafter := range Drafters {
			for _, fed := range []int{0, 24, 96} {
				m.ObserveDraft(drafter, 1, 4, fed, ms(2+0.05*float64(1+drafter)*float64(fed)))
			}
		}
	}
	for drafter := range Drafters {
		near(t, "rows fed late", 10*m.Draft(drafter, 0, 0, 32), 1.6*float64(1+drafter), 0.05)
		near(t, "drafts", 10*m.Draft(drafter, 1, 4, 0), 2, 0.05)
	}
}

// TestPromptRows has a row of a prompt take a tenth of what one of a text does.
func TestPromptRows(t *testing.T) {
	var m Model
	if m.PromptRow() != 0 || m.Time(1, 1) != 0 {
		t.Error("something is known")
	}
	m.ObservePrompt(0, 100, ms(20))
	if x := m.PromptRow(); x <= 0 || x > 0.0002 {
		t.Errorf("%v s after a prompt alone", x)
	}
	for range 60 {
		m.ObservePass(2, 0, ms(11))
		m.ObservePrompt(2, 50, ms(16))
		m.ObservePrompt(0, 101, ms(20))
	}
	near(t, "seconds of a row", 1e3*m.PromptRow(), 0.1, 0.1)
	near(t, "seconds of a pass with a prompt", 1e3*m.Time(2, 50), 16, 0.05)
	near(t, "seconds of a prompt", 1e3*m.Time(0, 101), 20, 0.05)
	for range 60 {
		m.ObserveRest(ms(3))
	}
	near(t, "seconds of the rest", 1e3*m.Rest(), 3, 0.1)
}

// doubt is the standard deviation of the relation of passes over a and b rows: what very many passes would change.
func doubt(m *Model, a, b int) float64 { return m.Surprise(a, b, math.MaxInt32, 0) }

// TestDoubt falls with alternating passes of the two sizes, not with passes of one of them, and rises with time.
func TestDoubt(t *testing.T) {
	var m Model
	none := doubt(&m, 4, 1)
	for range 50 {
		m.ObservePass(1, 0, ms(10))
	}
	one := doubt(&m, 4, 1)
	for range 20 {
		m.ObservePass(4, 0, ms(13))
		m.ObservePass(1, 0, ms(10))
	}
	both := doubt(&m, 4, 1)
	if one < none*0.9 || both > one/5 || doubt(&m, 3, 1) <= both || doubt(&m, 4, 4) != 0 {
		t.Errorf("doubt %v, %v after passes of one size, %v after both", none, one, both)
	}
	for range 2000 {
		m.ObservePass(1, 0, ms(10))
	}
	if later := doubt(&m, 4, 1); later < both+0.02 {
		t.Errorf("doubt %v, %v long after", both, later)
	}
}

// TestModelIsSaneWhateverItHears feeds it nonsense.
func TestModelIsSaneWhateverItHears(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	durations := []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, time.Hour, math.MaxInt64}
	some := func() time.Duration { return durations[rng.IntN(len(durations))] }
	for range 200 {
		var m Model
		for range 100 {
			m.ObservePass(rng.IntN(2000)-5, 0, some())
			m.ObservePrompt(rng.IntN(20), rng.IntN(2000)-5, some())
			m.ObserveRest(some())
			depths := make([]int, rng.IntN(4))
			for i := range depths {
				depths[i] = rng.IntN(12) - 1
			}
			observeDraft(&m, depths, some())
		}
		for _, x := range []float64{m.Pass(1), m.Pass(300), m.Time(5, 9), m.Draft(0, 3, 9, 0), doubt(&m, 40, 3), m.PromptRow(), m.Rest()} {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				t.Fatalf("%v", x)
			}
		}
	}
}

// TestNoiseIsMeasured follows the noise of passes, whatever it was before. The first pass of a size adds 0.8 of it at most.
func TestNoiseIsMeasured(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, noise := range []float64{0.2, 0.02} {
		m := measured(rng, 100, noise, 1)
		if got := math.Sqrt(m.noise); got < noise/2 || got > 2*noise {
			t.Errorf("noise %.3f, want %.3f", got, noise)
		}
		before := m.noise
		if m.ObservePass(64, 0, time.Second); m.noise > 1.801*before {
			t.Errorf("noise %v after the first pass of a size, %v before", m.noise, before)
		}
	}
	m := measured(rng, 200, 0, 1)
	if m.noise < leastNoise {
		t.Errorf("noise %v", m.noise)
	}
}

// TestPromptsBeforeAnyPass take the assumed relation of their rows. Nothing else counts before a pass is measured.
func TestPromptsBeforeAnyPass(t *testing.T) {
	var m Model
	observeDraft(&m, []int{1}, time.Second)
	m.ObserveRest(time.Second)
	m.ObservePrompt(0, 101, 0)
	m.ObservePass(0, 0, ms(10))
	near(t, "a draft of which nothing is known", m.Draft(0, 1, 1, 0), 0.23, 1e-9)
	if m.Known() || m.Rest() != 0 || m.PromptRow() != 0 {
		t.Error("something is known")
	}
	m.ObservePrompt(0, 101, ms(20))
	level := 20 / (1 + 100*assumedRow)
	near(t, "level", 1e3*m.Level(), level, 1e-9)
	near(t, "row", 1e3*m.PromptRow(), level*assumedRow, 1e-9)
	m.ObservePass(1, 0, 0)
	if m.Known() || m.Measured(1) != 0 {
		t.Error("a pass without a time is known, or counted")
	}
}

// TestFirstPromptTellsOfPasses has a prompt, then passes over eight rows: what larger ones cost follows from the rows of the prompt,
// within limits.
func TestFirstPromptTellsOfPasses(t *testing.T) {
	for _, row := range []float64{0.001, 0.05, 0.2, 0.3, 5} {
		var m Model
		pass := func(rows int) float64 { return 1 + row*float64(rows-1) }
		m.ObservePrompt(0, 300, ms(10*pass(300)))
		seconds := m.PromptRow()
		for range 8 {
			m.ObservePass(8, 0, ms(10*pass(8)))
		}
		near(t, fmt.Sprintf("seconds of a row of %v", row), m.PromptRow(), seconds, 0.02)
		row = min(max(row, assumedRow), likelyRow)
		near(t, fmt.Sprintf("a pass with rows of %v", row), m.Pass(64)/m.Pass(8), pass(64)/pass(8), 0.12)
	}
}

// TestFirstPassOfAllHardlyCounts has the first pass of a process take twice as long as later ones.
func TestFirstPassOfAllHardlyCounts(t *testing.T) {
	var m Model
	m.ObservePass(8, 0, ms(20))
	for range 3 {
		m.ObservePass(8, 0, ms(10))
	}
	near(t, "a pass", 1e3*m.Level()*m.Pass(8), 10, 0.06)
}

// TestDisturbancesHardlyCount has one prompt and one draft take much longer than those before them, then all drafts:
// one hardly counts, and a change is learned.
func TestDisturbancesHardlyCount(t *testing.T) {
	m := measured(rand.New(rand.NewPCG(17, 18)), 40, 0, 1)
	for range 100 {
		m.ObservePrompt(2, 50, ms(16))
		observeDraft(m, []int{2, 2}, ms(4))
		observeDraft(m, []int{0}, ms(0.5))
		m.ObserveRest(ms(1))
	}
	row, draft, rest := m.PromptRow(), m.Draft(0, 2, 4, 0), m.Rest()
	near(t, "draft", 10*draft, 4, 0.02)
	near(t, "row", 1e3*row, 0.1, 0.05)
	m.ObservePrompt(2, 50, -1)
	m.ObservePrompt(2, 0, ms(16))
	near(t, "row after two that say nothing", m.PromptRow(), row, 1e-9)
	m.ObservePrompt(2, 50, ms(320))
	near(t, "row after a disturbance", m.PromptRow(), row, 0.15)
	observeDraft(m, []int{2, 2}, ms(80))
	near(t, "draft after a disturbance", m.Draft(0, 2, 4, 0), 1.1*draft, 0.05)
	for range 60 {
		observeDraft(m, []int{2, 2}, ms(20))
	}
	near(t, "draft after a change", 10*m.Draft(0, 2, 4, 0), 20, 0.05)
	near(t, "rest after a change of drafts", m.Rest(), rest, 1e-9)
}

// TestFirstPassesOfASize has the first passes of a size take longer than later ones, on a machine without noise: they count little, so
// the later ones are no accidents, and their relation to other sizes is uncertain until then.
func TestFirstPassesOfASize(t *testing.T) {
	for _, slow := range []int{0, 1, 3} {
		var m Model
		for range 40 {
			m.ObservePass(1, 0, ms(10))
			m.ObservePass(4, 0, ms(14))
		}
		expected := m.Pass(16)
		for i := range 12 {
			x := 0.75 * expected
			if i < slow {
				x *= 1.5
			}
			m.ObservePass(1, 0, ms(10))
			m.ObservePass(16, 0, ms(10*x))
			if surprise := m.Surprise(16, 4, 2, 0); i < 3 && surprise < 0.1 || i == 11 && surprise > 0.05 {
				t.Errorf("%d slow passes: a surprise of %.3f after %d passes", slow, surprise, i+1)
			}
			if got := m.Pass(16) / expected; i == 0 && (got > 1.05 || got < 0.9) {
				t.Errorf("%d slow passes: %.3f of what was expected after the first", slow, got)
			}
		}
		near(t, fmt.Sprintf("a size with %d slow passes", slow), m.Pass(16), 0.75*expected, 0.06)
		near(t, "another size", m.Pass(4), 1.4, 0.02)
	}
}

// TestSurprise compares the deviation of changes with the measured ones, of many machines.
func TestSurprise(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	m := measured(rng, 40, 0.05, 1)
	if x := m.Surprise(4, 4, 2, 0); x != 0 {
		t.Errorf("a surprise of %v about the same size", x)
	}
	few, many, all := m.Surprise(8, 1, 1, 0), m.Surprise(8, 1, 1000, 0), doubt(m, 8, 1)
	if few >= many || many > all || many < 0.99*all {
		t.Errorf("surprise %v after a pass, %v after many, doubt %v", few, many, all)
	}
	near(t, "surprise", few, all*all/math.Sqrt(all*all+m.noise), 1e-6)
	for range 400 { // all passes over one row come after others
		m.ObservePass(1, 1, ms(12))
		m.ObservePass(4, 0, ms(13))
	}
	if after, steady := m.Surprise(1, 4, 2, 1), m.Surprise(1, 4, 2, 0); steady < 0.02 || after > steady/3 {
		t.Errorf("surprise %v by passes after others, %v by steady ones", after, steady)
	}
}

// TestEstimatesOfFixedMeasurements compares the estimates after a fixed list of measurements with those on record: every
// change of the arithmetic shows.
func TestEstimatesOfFixedMeasurements(t *testing.T) {
	var m Model
	want := [][]float64{
		{0.013062562, 0.00666788198, 1.17183821, 2.06387344, 2.93156171, 3.21562686, 84.4029739, 0.301454131, 0.131316963, 0.131316963, 0.255722314, 0.134807244, 0.37219536, 0.000716197324, 0.00218225351, 0.0724936699, 4},
		{0.0111078256, 0.0104295065, 1.21800383, 2.2464271, 3.45025076, 3.84394405, 110.603826, 0.16505345, 0.0988378845, 0.0988378845, 0.192694569, 0.14825974, 0.431144441, 0.000758140459, 0.00218472084, 0.0708387213, 8},
	}
	for i, list := range want {
		for j := range 12 {
			rows, slower := []int{1, 8, 9, 16, 3, 40, 700}[(5*i+3*j)%7], []float64{1, 1.1, 0.95, 1.02, 1.6}[(i+2*j)%5]
			m.ObservePass(rows, 0, ms(slower*(8+2*float64(rows))))
			observeDraft(&m, []int{j % 3, 0, i}, ms(slower*(0.3+float64(max(j%3, i))+0.2*float64(j%3+i))))
			m.ObservePrompt(j%2, 10+20*i, ms(slower*(10+2*float64(10+20*i))))
			m.ObserveRest(ms(slower * 0.7))
		}
		m.ObservePass(8, 0, ms(300)) // an accident
		m.ObservePass(8, 0, 0)
		got := []float64{
			m.Level(), m.noise, m.Pass(2), m.Pass(8), m.Pass(14), m.Pass(16), m.Pass(600), doubt(&m, 1, 8), doubt(&m, 14, 8), doubt(&m, 8, 14), doubt(&m, 300, 16),
			m.Draft(0, 1, 1, 0), m.Draft(0, 2, 7, 0), m.Rest(), m.PromptRow(), m.Time(9, 20), float64(m.Measured(8)),
		}
		for k, x := range got {
			if k >= len(list) || math.Abs(x-list[k]) > 1e-6*math.Abs(x) {
				t.Errorf("list %d: %.9g", i, got)
				break
			}
		}
	}
}

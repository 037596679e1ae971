package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// informed is a controller that knows what passes cost, in levels of a second, and what
// drafting costs; acceptance is up to its priors.
func informed(pass func(rows int) float64, draft func(depth, runs int) float64) *Controller {
	c := NewController()
	c.level = 1
	for rows := 1; rows <= maxRows; rows++ {
		c.pass.add(rows, pass(rows), 0, costRate)
		c.pass.cells[rows].n = 100
	}
	for s, runs := range []int{1, 2, 4, 8, 16} {
		c.draft[s].sums[0] = 100
		for depth := range MaxDepth + 1 {
			c.draft[s].cells[depth] = cell{value: draft(depth, runs), n: 100}
		}
	}
	return c
}

// steps is a cost that grows by random steps.
func steps(rng *rand.Rand, n int) []float64 {
	list := []float64{1}
	for len(list) < n {
		list = append(list, list[len(list)-1]+rng.Float64()*rng.Float64())
	}
	return list
}

// TestChoiceIsTheBestDepth compares the choice for a lone run with all others: tokens over
// time of every depth, with the frequencies that the controller has counted.
func TestChoiceIsTheBestDepth(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	taken := map[int]int{}
	for range 500 {
		pass, draft := steps(rng, maxRows+1), steps(rng, MaxDepth+1)
		scale := rng.Float64()
		c := informed(func(rows int) float64 { return pass[rows-1] }, func(depth, _ int) float64 { return scale * (draft[depth] - 1) })
		r := &Record{}
		for range rng.IntN(40) {
			drafted := rng.IntN(MaxDepth + 1)
			accepted := rng.IntN(drafted + 1)
			c.Report(r, Outcome{Drafted: drafted, Accepted: accepted, Tokens: 1 + accepted})
		}
		limit := rng.IntN(MaxDepth + 1)
		best, most := 0, 0.0
		var gains [MaxCopy]float64
		c.chances(r, Computed, 0, &gains)
		tokens := 1.0
		for d := range limit + 1 {
			if d > 0 {
				tokens += gains[d-1]
			}
			if x := tokens / (pass[d] + scale*(draft[d]-1)); x > most {
				best, most = d, x
			}
			if got := c.Rate(r, d); d > 0 && math.Abs(got/(tokens/(pass[d]+scale*(draft[d]-1)))-1) > 1e-9 {
				t.Fatalf("Rate at depth %d is %v, want %v", d, got, tokens/(pass[d]+scale*(draft[d]-1)))
			}
		}
		batch := []Run{{Depth: limit, Sources: Computed.only()}}
		if c.Choose(batch, []*Record{r}); batch[0].Depth != best {
			t.Fatalf("depth %d, want %d of %d", batch[0].Depth, best, limit)
		}
		taken[best]++
	}
	if len(taken) < 6 {
		t.Errorf("best depths %v: too few to tell", taken)
	}
}

// TestChoiceIsTheBestOfABatch compares the choice for three runs, one of them with a fixed
// depth, with all others, where drafting costs nothing. Where drafts would gain little there are
// none beside those of the fixed depth.
func TestChoiceIsTheBestOfABatch(t *testing.T) {
	const limit = 3
	rng := rand.New(rand.NewPCG(21, 22))
	drafted, even := 0, 0
	for range 300 {
		pass := steps(rng, maxRows+1)
		c := informed(func(rows int) float64 { return pass[rows-1] }, func(int, int) float64 { return 0 })
		fixed := rng.IntN(limit + 1)
		records := []*Record{{}, {Fixed: FixedDepth(fixed)}, {}}
		batch := make([]Run, len(records))
		var gains [3][MaxCopy]float64
		for i, r := range records {
			batch[i] = Run{Depth: limit, Sources: Computed.only()}
			for range rng.IntN(60) {
				n := rng.IntN(limit + 1)
				c.Report(r, Outcome{Drafted: limit, Accepted: n, Tokens: 1 + n})
			}
		}
		for i, r := range records {
			c.chances(r, Computed, 0, &gains[i])
		}
		rate := func(depths [3]int) float64 {
			tokens, rows := 0.0, 0
			for i, d := range depths {
				tokens, rows = tokens+1, rows+1+d
				for _, g := range gains[i][:d] {
					tokens += g
				}
			}
			return tokens / pass[rows-1]
		}
		most := 0.0
		for a := range limit + 1 {
			for b := range limit + 1 {
				most = max(most, rate([3]int{a, fixed, b}))
			}
		}
		if plain := rate([3]int{0, fixed, 0}); most < worth*plain {
			most = plain
			even++
		}
		c.Choose(batch, records)
		got := [3]int{batch[0].Depth, batch[1].Depth, batch[2].Depth}
		if got[1] != fixed || math.Abs(rate(got)/most-1) > 1e-12 {
			t.Fatalf("depths %v, the second fixed at %d: %.6f tokens per second, want %.6f", got, fixed, rate(got), most)
		}
		drafted += got[0] + got[2]
	}
	if drafted == 0 || even < 10 || even > 290 {
		t.Errorf("%d drafts were worth their rows, %d of 300 batches gain little", drafted, even)
	}
}

// TestChoiceIsTheBestSource offers a head and a copy: the copy costs no drafting, and is taken
// where it gives more tokens per second.
func TestChoiceIsTheBestSource(t *testing.T) {
	for _, x := range []struct {
		draft float64 // per token that the head drafts, in plain passes
		head  int     // of ten drafts of the head, so many are accepted
		copy  int     // of a copy
		want  Source
	}{
		{0.1, 9, 2, Computed}, {0.1, 9, 9, CopyOf4}, {2, 9, 6, CopyOf4}, {0.01, 9, 8, Computed},
	} {
		c := informed(func(rows int) float64 { return 1 + 0.05*float64(rows-1) }, func(depth, _ int) float64 { return x.draft * float64(depth) })
		r := &Record{}
		for i := range 400 {
			for s, n := range map[Source]int{Computed: x.head, CopyOf4: x.copy} {
				r.source = s
				accepted := 0
				if i%10 < n {
					accepted = 1
				}
				c.Report(r, Outcome{Drafted: 1, Accepted: accepted, Tokens: 1 + accepted})
			}
		}
		c.rounds = 0
		batch := []Run{{Depth: 1, Sources: Computed.only().With(CopyOf4)}}
		if c.Choose(batch, []*Record{r}); batch[0].Source != x.want {
			t.Errorf("%+v: source %d", x, batch[0].Source)
		}
	}
}

// TestChoiceOfSourceAtAFixedDepth has a head whose first draft is nearly always accepted and
// whose others never are, and a copy that is right more often than not all the way: the head is
// better at its best depth, the copy at a fixed depth beyond it.
func TestChoiceOfSourceAtAFixedDepth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for fixed, want := range map[Depth]Source{DepthAuto: Computed, 1: Computed, 3: CopyOf4} {
		c := informed(func(rows int) float64 { return 1 + 0.5*float64(rows-1) }, func(depth, _ int) float64 { return 0.01 * float64(depth) })
		r := &Record{}
		for range 400 {
			for s, chances := range map[Source][3]float64{Computed: {0.95, 0, 0}, CopyOf4: {0.6, 0.6, 0.6}} {
				accepted := 0
				for accepted < 3 && rng.Float64() < chances[accepted] {
					accepted++
				}
				r.source = s
				c.Report(r, Outcome{Drafted: 3, Accepted: accepted, Tokens: 1 + accepted})
			}
		}
		c.rounds, r.Fixed = 0, fixed
		batch := []Run{{Depth: 3, Sources: Computed.only().With(CopyOf4)}}
		if c.Choose(batch, []*Record{r}); batch[0].Source != want {
			t.Errorf("depth %v: source %d, want %d", fixed, batch[0].Source, want)
		}
	}
}

// TestTrialsBecomeRare records the rounds in which another depth is tried in a world where
// depth 0 is best by far: every eight rounds at first, every 64 later. The round after a trial
// repeats it.
func TestTrialsBecomeRare(t *testing.T) {
	c := informed(func(rows int) float64 { return float64(rows * rows) }, func(depth, _ int) float64 { return float64(depth) })
	r := &Record{}
	var at []int
	for round := 1; round <= 1200; round++ {
		batch := []Run{{Depth: MaxDepth, Sources: Computed.only()}}
		if c.Choose(batch, []*Record{r}); batch[0].Depth > 0 {
			if batch[0].Depth != 1 {
				t.Fatalf("depth %d is tried beside 0", batch[0].Depth)
			}
			at = append(at, round)
		}
	}
	var gaps []int
	for i, round := range at {
		switch {
		case i == 0:
			gaps = append(gaps, round)
		case i%2 == 1 && round != at[i-1]+1:
			t.Errorf("the trial of round %d is repeated in round %d", at[i-1], round)
		case i%2 == 0:
			gaps = append(gaps, round-at[i-2])
		}
	}
	want := []int{8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 64, 64}
	if len(gaps) < len(want) || !slices.Equal(gaps[:len(want)], want) {
		t.Errorf("rounds between trials %v, want %v", gaps, want)
	}
}

// TestTrialsTakeTurns has three runs, of which one has a fixed depth and one may not draft.
func TestTrialsTakeTurns(t *testing.T) {
	c := informed(func(rows int) float64 { return float64(rows * rows) }, func(depth, _ int) float64 { return float64(depth) })
	records := []*Record{{}, {Fixed: FixedDepth(2)}, {}, {}}
	tries := make([]int, len(records))
	for range 2000 {
		batch := make([]Run, len(records))
		for i := range batch {
			batch[i] = Run{Depth: MaxDepth, Sources: Computed.only()}
		}
		batch[2].Depth = 0
		c.Choose(batch, records)
		for i, r := range batch {
			if r.Depth > 0 {
				tries[i]++
			}
		}
	}
	if tries[1] != 2000 || tries[2] != 0 || tries[0] < 30 || tries[3] < 30 || max(tries[0], tries[3]) > 2*min(tries[0], tries[3]) {
		t.Errorf("rounds with drafts, by run: %v", tries)
	}
}

// TestTrialsTakeWhatWasMeasuredLeast has depth 3 as the best: of one draft more, one less and
// none the trial takes the one whose number of rows was measured least.
func TestTrialsTakeWhatWasMeasuredLeast(t *testing.T) {
	for _, x := range []struct{ four, two, none, want int }{
		{10, 20, 30, 4}, {20, 10, 30, 2}, {30, 20, 10, 0}, {10, 10, 10, 4},
	} {
		c := informed(func(rows int) float64 { return 1 + 10*float64(max(rows-4, 0)) }, func(int, int) float64 { return 0 })
		c.pass.cells[5].n, c.pass.cells[3].n, c.pass.cells[1].n = x.four, x.two, x.none
		c.rounds = tryEvery
		batch := []Run{{Depth: MaxDepth, Sources: Computed.only()}}
		if c.Choose(batch, []*Record{{}}); batch[0].Depth != x.want {
			t.Errorf("%+v: tried %d", x, batch[0].Depth)
		}
	}
}

// TestTrialsOfSources offers a copy that is never worth it: every other trial is of it.
func TestTrialsOfSources(t *testing.T) {
	c := informed(func(rows int) float64 { return float64(rows * rows) }, func(depth, _ int) float64 { return float64(depth) })
	r := &Record{}
	copies, computed := 0, 0
	for range 1500 {
		batch := []Run{{Depth: MaxDepth, Sources: Computed.only().With(CopyOf2).With(CopyOf8)}}
		if c.Choose(batch, []*Record{r}); batch[0].Depth == 0 {
			continue
		}
		if batch[0].Source == Computed {
			computed++
		} else if copies++; batch[0].Depth != 1 {
			t.Fatalf("%d copied drafts are tried", batch[0].Depth)
		}
	}
	if copies < 10 || computed < 10 || computed > 4*copies {
		t.Errorf("%d trials of copies, %d rounds with computed drafts", copies, computed)
	}
}

// TestCostsByHand works out what two curves and the level are after a few measurements.
func TestCostsByHand(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: %.12g, want %.12g", what, got, want)
		}
	}
	c := NewController()
	near("nothing known", c.passCost(3), 0)
	near("drafts of nothing known", c.draftCost(2, 1), 0)
	c.ObservePass(0, 0, time.Second)
	near("no rows", c.level, 0)
	c.ObservePass(1, 0, 10*time.Millisecond)
	near("level", c.level, 0.01)
	near("pass", c.passCost(1), 1)
	near("an unknown draft", c.draftCost(2, 1), 2*assumedDraft)
	near("rows beside the first", c.passCost(4), 1+3*assumedRow)
	trust := func(n float64) float64 { // in a size whose measurements count like n
		doubt := usualNoise * usualNoise / n
		return levelDoubt * levelDoubt / (levelDoubt*levelDoubt + doubt)
	}
	c.ObservePass(1, 0, 20*time.Millisecond) // twice as long: a single measurement says little, and the second takes its place
	level := 0.01 * math.Pow(2, trust(0.25))
	near("level", c.level, level)
	cell := 0.02 / level
	near("pass", c.passCost(1), cell)
	c.ObservePass(1, 0, time.Second) // the machine is another, or this size is dear: half of each
	level2 := level * math.Pow(1/level/cell, trust(1))
	near("level", c.level, level2)
	cell2 := cell * math.Pow(1/level2/cell, 1.0/2)
	near("pass", c.passCost(1), cell2)
	c.ObservePass(1, 0, 100*time.Second) // from now on the cell takes a factor of two at most
	near("level", c.level, level2*math.Pow(100/level2/cell2, trust(2)))
	near("pass", c.passCost(1), cell2*math.Pow(2, 1.0/3))
	now := c.level
	c.ObservePass(1, 0, time.Duration(1.1*now*c.passCost(1)*1e9)) // as far off as usual
	near("level", c.level, now*math.Pow(1.1, levelRate*trust(3)))

	d := NewController()
	d.ObserveDraft([]int{1}, time.Second)
	near("a draft before any pass", d.draft[0].sums[0], 0)
	d.ObservePass(1, 0, 10*time.Millisecond)
	if d.ObserveDraft(nil, time.Second); d.draft[0].sums[0] != 0 {
		t.Error("a draft of no run counts")
	}
	d.ObserveDraft([]int{0, 2, 0}, 3*time.Millisecond) // one run is drafted for
	near("draft", d.draftCost(2, 1), 0.3)
	near("draft of more runs, never seen", d.draftCost(2, 8), 0.3)
	e := NewController()
	e.ObservePass(1, 0, 10*time.Millisecond)
	e.ObserveDraft([]int{1, 1, 1, 1}, 4*time.Millisecond)
	near("a dear draft the first time", e.draftCost(1, 4), assumedDraft)
	e.ObserveDraft([]int{1, 1, 1, 1}, 4*time.Millisecond)
	near("draft of fewer runs, never seen", e.draftCost(1, 1), 0.4)
	e.ObserveDraft([]int{1}, 2*time.Millisecond)
	near("draft of two runs, of which one is nearest", e.draftCost(1, 2), 0.2)
	d.ObserveDraft([]int{0, 0, 0}, time.Millisecond) // three catch up
	near("catching up", d.draft[size(3)].cells[0].value, 0.1)
	d.ObserveDraft([]int{2}, 20*time.Millisecond) // forgiven: twice what is known at most
	near("draft", d.draftCost(2, 1), 0.6)
	d.ObserveDraft([]int{MaxDepth + 5}, time.Millisecond)
	if d.draft[0].cells[MaxDepth].n != 1 {
		t.Error("a depth beyond the maximum is not counted as the maximum")
	}
	d.ObservePass(maxRows+7, 1, time.Second)
	if d.pass.cells[maxRows].n != 1 {
		t.Error("rows beyond the maximum are not counted as the maximum")
	}
}

// TestDisturbedPassCountsIfThereIsNoOther reports the first plain pass after one with drafts.
func TestDisturbedPassCountsIfThereIsNoOther(t *testing.T) {
	c := NewController()
	c.ObservePass(2, 1, 10*time.Millisecond)
	if c.ObservePass(1, 0, 10*time.Millisecond); c.pass.cells[1].n != 1 {
		t.Error("the only plain pass does not count")
	}
}

// TestSizes are the curves of numbers of runs.
func TestSizes(t *testing.T) {
	for runs, want := range map[int]int{1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 8: 3, 9: 4, 16: 4, 1000: 4} {
		if got := size(runs); got != want {
			t.Errorf("%d runs: curve %d, want %d", runs, got, want)
		}
	}
}

// TestCurve compares costs between measurements with the line of least squares, which the
// assumed slope is part of as if it had been measured, within its bounds.
func TestCurve(t *testing.T) {
	line := func(points [][2]float64, slope, at float64) float64 {
		var n, x, y, xx, xy float64
		for _, p := range points {
			n, x, y, xx, xy = n*(1-costRate)+1, x*(1-costRate)+p[0], y*(1-costRate)+p[1], xx*(1-costRate)+p[0]*p[0], xy*(1-costRate)+p[0]*p[1]
		}
		x, y, xx, xy = x/n, y/n, xx/n, xy/n
		b := (xy - x*y + 0.1*slope*y) / (xx - x*x + 0.1)
		b = min(max(b, 0), y/max(x, 1))
		return y + b*(at-x)
	}
	for _, points := range [][][2]float64{
		{{1, 1}},
		{{1, 1}, {4, 1.6}},
		{{2, 3}, {6, 2}, {7, 2.5}}, // falls: taken as level
		{{3, 1}, {4, 9}},           // steeper than through nothing
		{{1, 1}, {2, 1.1}, {8, 2}, {9, 3}},
	} {
		var c curve
		for _, p := range points {
			c.add(int(p[0]), p[1], 0, costRate)
		}
		for _, at := range []int{0, 5, 10, 40} {
			if got, want := c.at(at, 0.03), line(points, 0.03, float64(at)); math.Abs(got-want) > 1e-9 {
				t.Errorf("%v at %d: %v, want %v", points, at, got, want)
			}
		}
	}
}

// TestPassCostBelievesWhatIsSettled has a few sizes that were measured often, one of them dearer than a larger one, as
// where a device takes another kernel: they cost what was measured. A size that was measured a few times lies between
// those around it.
func TestPassCostBelievesWhatIsSettled(t *testing.T) {
	for _, x := range []struct {
		rows, n            int
		value, least, most float64
	}{
		{8, 400, 1.84, 1.84, 1.84},
		{9, 400, 1.58, 1.58, 1.58},
		{12, 2, 3, 1.84, 2.2},
		{12, 2, 1.2, 1.84, 2.2},
		{12, settled, 3, 3, 3},
		{4, 2, 3, 1, 1.58},
		{4, 0, 0, 1, 1.58},
	} {
		c := NewController()
		c.level = 1
		for rows, cost := range map[int]float64{1: 1, 8: 1.84, 9: 1.58, 16: 2.2} {
			c.pass.add(rows, cost, 0, costRate)
			c.pass.cells[rows].n = 400
		}
		if x.n > 0 {
			c.pass.cells[x.rows] = cell{value: x.value, n: x.n}
		}
		if got := c.passCost(x.rows); got < x.least || got > x.most {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// TestOneBadMomentDoesNotDecide has a size that was measured two times when the machine was busy, between others that
// were measured more often: it is taken to cost less, and may cost what it does.
func TestOneBadMomentDoesNotDecide(t *testing.T) {
	c := NewController()
	c.level = 1
	for rows, cost := range map[int]float64{8: 1.38, 12: 1.56, 20: 1.92, 24: 2.1} {
		c.pass.add(rows, cost, 0, costRate)
		c.pass.cells[rows].n = 10
	}
	c.pass.cells[16] = cell{value: 1.5 * 1.74, n: 2}
	if e := c.passFit(16); e.cost < 1.74 || e.cost > 1.3*1.74 || e.cost*(1-hope*e.doubt) > 1.15*1.74 {
		t.Errorf("%+v", e)
	}
}

// Of sizes that promise nearly the most, a batch takes the one that was measured most often, and never one that
// promises less.
func TestBatchKeepsToFamiliarSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for range 200 {
		c, rows := NewController(), 2+rng.IntN(20)
		take, most := 0, 0.0
		for n := range 1 + rng.IntN(30) {
			c.rates = append(c.rates, 1+rng.Float64()/10)
			c.pass.cells[rows+n+1].n = rng.IntN(5)
			if c.rates[n] > most {
				take, most = n+1, c.rates[n]
			}
		}
		got := c.familiar(rows, take, most)
		for n, x := range c.rates {
			if x >= most/nearly && c.pass.cells[rows+n+1].n > c.pass.cells[rows+got].n {
				t.Fatalf("%d drafts of %v, though %d were measured more often", got, c.rates, n+1)
			}
		}
		if c.rates[got-1] < most/nearly || got != take && c.pass.cells[rows+got].n == c.pass.cells[rows+take].n {
			t.Fatalf("%d drafts of %v, the most with %d", got, c.rates, take)
		}
	}
}

// TestBatchesFindTheirDepthSoon has machines whose passes always take the same, as GPUs do, and batches that are new to
// the controller: their first 60 rounds have most of what the best fixed depth gives. As much noise as a busy processor
// has is not taken for knowledge.
func TestBatchesFindTheirDepthSoon(t *testing.T) {
	for _, x := range []struct {
		seqs  int
		pass  [4]float64 // milliseconds at depths 0 to 3
		head  float64
		least float64
	}{
		{8, [4]float64{8.8, 10.5, 12.5, 16}, 0.35, 0.9},
		{4, [4]float64{1.05, 1.3, 1.5, 1.65}, 0.15, 0.9},
	} {
		w := &world{accepts: alike(0.71, 0.73, 0.74), noise: 0.02, verify: func(rows int) float64 {
			depth := min(float64(rows)/float64(x.seqs)-1, 2.999) // beyond 3 the last slope goes on
			below := int(max(depth, 0))
			return x.pass[below] + (float64(rows)/float64(x.seqs)-1-float64(below))*(x.pass[below+1]-x.pass[below])
		}, draft: func(deepest, _ int) float64 { return x.head * float64(deepest) }}
		best := 0.0
		for d := range MaxDepth + 1 {
			best = max(best, w.expected(slices.Repeat([]int{d}, x.seqs)...))
		}
		share, doubts := 0.0, 0
		const seeds = 12
		for seed := range uint64(seeds) {
			c, records := NewController(), make([]*Record, x.seqs)
			for i := range records {
				records[i] = &Record{}
			}
			got := w.live(c, rand.New(rand.NewPCG(seed, 6)), records, 60)
			share += got.rate() / best / seeds
			doubts = max(doubts, c.enough())
		}
		t.Logf("%d sequences: %.3f of the best fixed depth in the first 60 rounds", x.seqs, share)
		if share < x.least || doubts > 3 {
			t.Errorf("%d sequences: %.3f of the best fixed depth, want %v; %d measurements are needed of a size", x.seqs, share, x.least, doubts)
		}
		w.noise = 0.15
		c := NewController()
		w.live(c, rand.New(rand.NewPCG(1, 6)), []*Record{{}, {}}, 200)
		if c.enough() != wellKnown {
			t.Errorf("%d measurements are enough at a noise of 15 %%", c.enough())
		}
	}
}

package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// informed is a controller that knows what passes cost, in multiples of 10 ms, and what drafting costs; acceptance is up
// to its priors. It has no trial in the next round.
func informed(pass func(rows int) float64, draft func(depth, runs int) float64) *Controller {
	c := NewController()
	for range 40 {
		for rows := 1; rows <= 40; rows++ {
			c.ObservePass(rows, time.Duration(pass(rows)*1e7))
		}
		for runs := 1; runs <= 3; runs++ {
			for depth := range MaxDepth + 1 {
				c.ObserveDraft(Computed, slices.Repeat([]int{depth}, runs), 0, time.Duration(draft(depth, runs)*1e7))
			}
		}
	}
	c.left = 1
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
	for range 60 {
		pass, each := steps(rng, 50), rng.Float64()*rng.Float64()
		c := informed(func(rows int) float64 { return pass[rows-1] }, func(depth, _ int) float64 { return each * float64(depth) })
		r := &Record{}
		for range rng.IntN(40) {
			drafted := rng.IntN(MaxDepth + 1)
			accepted := rng.IntN(drafted + 1)
			c.Report(r, Outcome{Drafted: drafted, Accepted: accepted, Tokens: 1 + accepted})
		}
		limit := rng.IntN(MaxDepth)
		most := 0.0
		gains := c.chances(r, Computed, 0, MaxDepth)
		tokens, rates := 1.0, [MaxDepth + 1]float64{}
		for d := range limit + 1 {
			if d > 0 {
				tokens += gains[d-1]
			}
			rates[d] = tokens / (pass[d] + each*float64(d))
			most = max(most, rates[d])
			if got := c.Rate(r, d) / 100; math.Abs(got/rates[d]-1) > 0.05 {
				t.Fatalf("Rate at depth %d is %v, want %v", d, got, rates[d])
			}
		}
		batch := []Run{{Depth: limit, Sources: Computed.only()}}
		if c.Choose(batch, []*Record{r}); rates[batch[0].Depth] < 0.95*most {
			t.Fatalf("depth %d of %d: %v tokens per time, want %v", batch[0].Depth, limit, rates[batch[0].Depth], most)
		}
		taken[batch[0].Depth]++
	}
	if len(taken) < 6 {
		t.Errorf("best depths %v: too few to tell", taken)
	}
}

// TestChoiceIsTheBestOfABatch compares the choice for three runs, one of them with a fixed
// depth, with all others, where drafting costs nothing.
func TestChoiceIsTheBestOfABatch(t *testing.T) {
	const limit = 3
	rng := rand.New(rand.NewPCG(21, 22))
	drafted, share := 0, 0.0
	const machines = 60
	for range machines {
		pass := steps(rng, 50)
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
			gains[i] = c.chances(r, Computed, 0, MaxDepth)
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
		c.Choose(batch, records)
		got := [3]int{batch[0].Depth, batch[1].Depth, batch[2].Depth}
		share += rate(got) / most / machines
		if got[1] != fixed || rate(got) < 0.8*most { // costs between two sizes are not on lines here
			t.Fatalf("depths %v, the second fixed at %d: %.6f tokens per time, want %.6f", got, fixed, rate(got), most)
		}
		drafted += got[0] + got[2]
	}
	if drafted == 0 || share < 0.985 {
		t.Errorf("%d drafts, %.3f of the best rate on average", drafted, share)
	}
}

// TestChoiceIsTheBestSource offers a head and a copy: the copy costs no drafting, and is taken
// where it gives more tokens per second.
func TestChoiceIsTheBestSource(t *testing.T) {
	for _, x := range []struct {
		draft float64 // per token that the head drafts, in plain passes
		head  int     // accepted drafts of the head, of ten
		copy  int     // accepted drafts of a copy, of ten
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
		c.left = 1
		batch := []Run{{Depth: 1, Sources: Computed.only().With(CopyOf4)}}
		if c.Choose(batch, []*Record{r}); batch[0].Source != x.want {
			t.Errorf("%+v: source %d", x, batch[0].Source)
		}
	}
}

// TestBatchesFindTheirDepthSoon has machines whose passes always take the same, as GPUs do, and batches that are new to
// the controller: their first 60 rounds have most of what the best fixed depth gives.
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
		share := 0.0
		const seeds = 12
		for seed := range uint64(seeds) {
			c, records := NewController(), make([]*Record, x.seqs)
			for i := range records {
				records[i] = &Record{}
			}
			got := w.live(c, rand.New(rand.NewPCG(seed, 6)), records, 60)
			share += got.rate() / best / seeds
		}
		t.Logf("%d sequences: %.3f of the best fixed depth in the first 60 rounds", x.seqs, share)
		if share < x.least {
			t.Errorf("%d sequences: %.3f of the best fixed depth, want %v", x.seqs, share, x.least)
		}
	}
}

// TestChoicesRest has drafts that cannot pay: after a round without drafts, the next rounds have no choice, in proportion to
// the time of a choice. Another number of runs ends that, and a trial.
func TestChoicesRest(t *testing.T) {
	row := 1.0
	pass := func(rows int) float64 { return 1 + row*float64(rows-1) }
	step := func(depth, _ int) float64 { return 0.1 * float64(depth) }
	choose := func(c *Controller, n, rounds int) (drafted int) {
		batch, records := make([]Run, n), make([]*Record, n)
		for range rounds {
			for i := range batch {
				batch[i], records[i] = Run{Depth: 2, Sources: Computed.only()}, &Record{}
			}
			c.Choose(batch, records)
		}
		return batch[0].Depth
	}
	rests := func(c *Controller, n int, took time.Duration) (rounds int) {
		for c.Chosen(took); c.Rests(n); rounds++ {
		}
		return rounds
	}
	c := informed(pass, step)
	for plain := range 4 {
		if n := rests(c, 2, time.Hour); n != 2*plain {
			t.Errorf("%d rounds without a choice after %d without drafts", n, plain)
		}
		choose(c, 2, 1)
	}
	for ms, want := range map[float64]int{0: 0, 0.03: 0, 0.045: 1, 0.09: 2, 0.41: 10, 100: restRounds} { // a pass takes 20
		for s := range c.idle {
			c.idle[s] = restRounds / 2
		}
		if n := rests(c, 2, time.Duration(ms*1e6)); n != want {
			t.Errorf("%d rounds without a choice of %v ms, want %d", n, ms, want)
		}
	}
	if c.Chosen(time.Hour); c.Rests(3) || c.Rests(2) {
		t.Error("another number of runs has no choice")
	}
	if c.left = trialRounds; rests(c, 2, time.Hour) > 0 {
		t.Error("rounds without a choice in a trial")
	}
	if c.left = settling + 2*trialRounds - 1; rests(c, 2, 0) != settling+1 {
		t.Error("a long trial has choices")
	}
	row, c.left = 0, 0
	c.Model = informed(pass, step).Model
	if choose(c, 2, 1) == 0 || rests(c, 2, time.Hour) > 0 {
		t.Error("rounds without a choice after drafts")
	}
}

// TestBlocksLimitDrafts has a drafter that computes up to four tokens at once, where more would pay.
func TestBlocksLimitDrafts(t *testing.T) {
	for block, want := range map[int]int{0: MaxDepth, 4: 4, MaxCopy + 1: MaxCopy} {
		c := informed(func(int) float64 { return 1 }, func(int, int) float64 { return 0 })
		c.Blocks[Computed] = block
		r := &Record{}
		for range 400 {
			c.Report(r, Outcome{Drafted: MaxDepth, Accepted: MaxDepth, Tokens: 1 + MaxDepth})
		}
		batch := []Run{{Depth: MaxCopy + 1, Sources: Computed.only()}}
		if c.Choose(batch, []*Record{r}); batch[0].Depth != want {
			t.Errorf("%d drafts of a drafter with blocks of %d, want %d", batch[0].Depth, block, want)
		}
	}
}

// TestIdleCountsRounds has rounds with drafts, rounds whose drafts do not pay, and rounds that can have none: only those of the
// second kind, and those with drafts of the other drafter, count.
func TestIdleCountsRounds(t *testing.T) {
	idle := func(c *Controller, row float64, depth int) [2]int {
		c.Model = informed(func(rows int) float64 { return 1 + row*float64(rows-1) }, func(int, int) float64 { return 0.01 }).Model
		for range 5 {
			c.left = 1 // no trials
			c.Choose([]Run{{Depth: depth, Sources: Computed.only()}}, []*Record{{}})
		}
		return [2]int{c.Idle(Computed), c.Idle(Beside)}
	}
	c := NewController()
	for _, x := range []struct {
		row   float64
		depth int
		want  [2]int
	}{{1, 0, [2]int{0, 0}}, {1, 2, [2]int{5, 5}}, {0.01, 2, [2]int{0, 10}}, {1, 2, [2]int{5, 15}}, {0.01, 0, [2]int{5, 15}}} {
		if got := idle(c, x.row, x.depth); got != x.want {
			t.Errorf("rows that cost %v, depth %d: idle for %v rounds, want %v", x.row, x.depth, got, x.want)
		}
	}
}

// TestIdleDraftersAreFed compares a candidate whose drafter has just drafted with one whose drafter was idle for some rounds: its share
// of the time of feeding is added. A candidate without its drafts has none.
func TestIdleDraftersAreFed(t *testing.T) {
	c := informed(func(rows int) float64 { return 1 + 0.1*float64(rows-1) }, func(depth, _ int) float64 { return 0.1 * float64(depth) })
	for range 200 {
		c.ObserveDraft(Computed, []int{1, 1}, 40, 3*time.Millisecond) // a step takes 1 ms, so a row takes 50 us
	}
	c.runs = 2
	draft, plain := candidate{rows: 4, tokens: 3}, candidate{rows: 4, tokens: 2}
	draft.total[Computed], draft.deepest[Computed] = 2, 1
	for rounds, rows := range map[int]float64{0: 0, 5: 10, 40: 2 * Backlog} {
		for x, want := range map[*candidate]float64{&draft: 0.005 * rows / horizon, &plain: 0} {
			c.idle[Computed] = 0
			now := x.tokens / c.rated(*x).rate
			c.idle[Computed] = rounds
			if got := x.tokens/c.rated(*x).rate - now; math.Abs(got-want) > 0.1*want {
				t.Errorf("%d rounds idle: feeding takes %.6f levels, want %.6f", rounds, got, want)
			}
		}
	}
}

// TestRejectedDrafterReturns has a drafter that was rejected for long: it is not chosen, until what was counted is forgotten.
func TestRejectedDrafterReturns(t *testing.T) {
	c := informed(func(rows int) float64 { return 1 + 0.02*float64(rows-1) }, func(depth, _ int) float64 { return 0.1 * float64(depth) })
	c.Blocks[Beside], c.begun = 7, [...]int{4 * firstRounds, 4 * firstRounds}
	r := From(Computed)
	choose := func() Source {
		batch := []Run{{Depth: MaxCopy, Sources: Computed.only().With(Beside)}}
		c.Choose(batch, []*Record{{}})
		return batch[0].Source
	}
	for range 100 {
		c.Report(r, Outcome{Drafted: 2, Accepted: 1, Tokens: 2})
		c.Report(From(Beside), Outcome{Drafted: 2, Tokens: 1})
	}
	rounds := 1
	for ; choose() == Computed && rounds < 3000; rounds++ {
		c.Report(r, Outcome{Drafted: 2, Accepted: 1, Tokens: 2})
	}
	if rounds < 200 || rounds == 3000 {
		t.Errorf("a drafter that was rejected is tried after %d rounds", rounds)
	}
}

// TestOneDrafterInARound has eight texts, half of which the head drafts better: all have the same drafter, and each drafter
// has its first rounds to itself.
func TestOneDrafterInARound(t *testing.T) {
	c := informed(func(rows int) float64 { return 1 + 0.02*float64(rows-1) }, func(depth, _ int) float64 { return 0.1 * float64(depth) })
	c.Blocks[Beside] = 7
	records, rounds := make([]*Record, 8), map[Source]int{}
	for i := range records {
		records[i] = From(Computed)
		for range 40 {
			c.Report(records[i], Outcome{Drafted: 3, Accepted: 3 * (i % 2), Tokens: 1 + 3*(i%2)})
		}
	}
	for round := range 3 * firstRounds {
		batch := make([]Run, len(records))
		for i := range batch {
			batch[i] = Run{Depth: MaxCopy, Sources: Computed.only().With(Beside)}
		}
		c.Choose(batch, records)
		for i := range batch {
			if batch[i].Source != batch[0].Source {
				t.Fatalf("round %d: drafters %d and %d", round, batch[0].Source, batch[i].Source)
			}
			n := min(1, batch[i].Depth)
			c.Report(records[i], Outcome{Drafted: batch[i].Depth, Accepted: n, Tokens: 1 + n})
		}
		rounds[batch[0].Source]++
		if want := Source(min(round/firstRounds, 1)); round < 2*firstRounds && batch[0].Source != want {
			t.Errorf("round %d: drafter %d, want %d", round, batch[0].Source, want)
		}
	}
	if rounds[Computed] < firstRounds || rounds[Beside] < firstRounds {
		t.Errorf("rounds by drafter: %v", rounds)
	}
}

// TestDrafterOfSingleRuns has a run that the drafter of the round cannot draft for, and runs whose drafts must not depend on
// measurements: these have the drafter that is better before anything is known.
func TestDrafterOfSingleRuns(t *testing.T) {
	both := Computed.only().With(Beside)
	c := informed(func(rows int) float64 { return 1 + 0.01*float64(rows-1) }, func(int, int) float64 { return 0 })
	c.Blocks[Beside] = 7
	batch := []Run{{Depth: 3, Sources: both}, {Depth: 3, Sources: Beside.only()}, {Depth: 3, Sources: both}, {Depth: 3, Sources: both, Dists: true}}
	c.Choose(batch, []*Record{{}, {}, {Fixed: 2}, {}})
	for i, want := range []Source{Computed, Beside, Beside, Beside} {
		if batch[i].Source != want || batch[i].Depth == 0 {
			t.Errorf("run %d has %d drafts of drafter %d, want drafter %d", i, batch[i].Depth, batch[i].Source, want)
		}
	}
}

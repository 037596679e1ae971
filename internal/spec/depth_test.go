package spec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a machine and texts with known costs and acceptance.
type world struct {
	verify  func(rows int) float64                // milliseconds of a pass
	draft   func(deepest, runs int) float64       // milliseconds of drafting; depth 0: catching up
	accepts func(seq int, s Source) []float64     // chance that draft j is accepted if those before it are; the last for all after it
	sources func(seq int, rng *rand.Rand) Sources // nil: Computed only
	noise   float64                               // relative
}

// linear is a pass that costs slope more for every row after the first.
func linear(slope float64) func(int) float64 {
	return func(rows int) float64 { return 10 * (1 + slope*float64(rows-1)) }
}

// head is drafting that costs delta of a plain pass per draft, and catch for catching up.
func head(delta, catch float64) func(int, int) float64 {
	return func(deepest, _ int) float64 { return 10 * max(delta*float64(deepest), catch) }
}

func alike(p ...float64) func(int, Source) []float64 {
	return func(int, Source) []float64 { return p }
}

func chance(p []float64, j int) float64 { return p[min(j, len(p)-1)] }

// tally is the result of some rounds.
type tally struct {
	tokens, ms float64
	depths     [MaxDepth + 1]int // of sequence 0
	mean       []float64         // depth by sequence
	copies     int               // rounds of sequence 0 that copied
}

func (t *tally) rate() float64 { return t.tokens / t.ms }

// live runs a controller in the world for a number of rounds.
func (w *world) live(c *Controller, rng *rand.Rand, records []*Record, rounds int) tally {
	batch, depths := make([]Run, len(records)), make([]int, len(records))
	t := tally{mean: make([]float64, len(records))}
	jitter := func(ms float64) time.Duration {
		return time.Duration(ms * (1 + w.noise*rng.NormFloat64()) * 1e6)
	}
	for range rounds {
		rows, deepest, runs := len(batch), 0, 0
		for i := range batch {
			batch[i] = Run{Depth: MaxDepth, Sources: Computed.only()}
			if w.sources != nil {
				batch[i].Sources = w.sources(i, rng)
			}
		}
		c.Choose(batch, records)
		for i, r := range batch {
			rows += r.Depth
			depths[i] = 0
			if r.Source == Computed {
				depths[i] = r.Depth
				if r.Depth > 0 {
					runs++
				}
			}
			deepest = max(deepest, depths[i])
			t.mean[i] += float64(r.Depth) / float64(rounds)
		}
		t.depths[batch[0].Depth]++
		if batch[0].Source != Computed && batch[0].Depth > 0 {
			t.copies++
		}
		t.ms += w.verify(rows) + w.draft(deepest, runs)
		c.ObserveDraft(Computed, depths, 0, jitter(w.draft(deepest, runs)))
		c.ObservePass(rows, jitter(w.verify(rows)))
		for i, r := range batch {
			accepted := 0
			for accepted < r.Depth && rng.Float64() < chance(w.accepts(i, r.Source), accepted) {
				accepted++
			}
			c.Report(records[i], Outcome{Drafted: r.Depth, Accepted: accepted, Tokens: 1 + accepted})
			t.tokens += float64(1 + accepted)
		}
	}
	return t
}

// expected is the rate at fixed depths, worked out.
func (w *world) expected(depths ...int) float64 {
	tokens, rows, runs := 0.0, 0, 0
	for i, d := range depths {
		all := 1.0
		tokens, rows = tokens+1, rows+1+d
		for j := range d {
			all *= chance(w.accepts(i, Computed), j)
			tokens += all
		}
		if d > 0 {
			runs++
		}
	}
	return tokens / (w.verify(rows) + w.draft(slices.Max(depths), runs))
}

// TestControllerFollowsChange lets acceptance fall to almost nothing and rise again.
func TestControllerFollowsChange(t *testing.T) {
	const seeds, changes = 4, 4
	mean := 0.0
	for seed := range uint64(seeds) {
		p := []float64{0.85}
		w := &world{verify: linear(0.08), draft: head(0.15, 0.05), accepts: func(int, Source) []float64 { return p }, noise: 0.1}
		rng := rand.New(rand.NewPCG(7+seed, 8))
		c, r := NewController(), &Record{}
		w.live(c, rng, []*Record{r}, 1000)
		for _, next := range [changes]float64{0.02, 0.9, 0.02, 0.7} {
			p = []float64{next}
			w.live(c, rng, []*Record{r}, 700) // time to notice
			late := w.live(c, rng, []*Record{r}, 500)
			best := 0.0
			for d := range MaxDepth + 1 {
				best = max(best, w.expected(d))
			}
			if mean += late.rate() / best / seeds / changes; late.rate() < 0.92*best {
				t.Errorf("drafts accepted in %v: %.3f of the best rate; depths taken %v", next, late.rate()/best, late.depths)
			}
		}
	}
	if mean < 0.98 {
		t.Errorf("%.3f of the best rate on average", mean)
	}
}

// TestControllerTellsSequencesApart has a sequence of high and one of low acceptance in one batch.
func TestControllerTellsSequencesApart(t *testing.T) {
	w := &world{
		verify: linear(0.08), draft: head(0.12, 0.05), noise: 0.1,
		accepts: func(seq int, _ Source) []float64 { return [][]float64{{0.9}, {0.05}}[seq] },
	}
	rng := rand.New(rand.NewPCG(9, 10))
	c, records := NewController(), []*Record{{}, {}}
	w.live(c, rng, records, 600)
	late := w.live(c, rng, records, 2000)
	best := 0.0
	for a := range MaxDepth + 1 {
		for b := range MaxDepth + 1 {
			best = max(best, w.expected(a, b))
		}
	}
	t.Logf("mean depths %.2f, %.3f of the best rate", late.mean, late.rate()/best)
	if late.rate() < 0.95*best || late.mean[0] < late.mean[1]+2 {
		t.Errorf("mean depths %.2f, %.3f of the best rate", late.mean, late.rate()/best)
	}
}

// TestControllerUsesCopiesThatPay mixes a head with a lookup that has a match in half of
// the rounds. Bad matches must not cost two per cent of the head's rate, good ones must gain.
func TestControllerUsesCopiesThatPay(t *testing.T) {
	base := world{verify: linear(0.06), draft: head(0.15, 0.05), noise: 0.1}
	for _, c := range []struct {
		copies float64 // chance of a copied draft
		least  float64 // the rate, as a multiple of the head's alone
		most   int     // rounds that copy
	}{
		{0, 0.98, 200}, {0.2, 0.98, 200}, {0.5, 0.98, 1600}, {0.95, 1.25, 8000},
	} {
		t.Run(fmt.Sprint(c.copies), func(t *testing.T) {
			w := base
			w.accepts = func(_ int, s Source) []float64 {
				if s == Computed {
					return []float64{0.72}
				}
				return []float64{c.copies}
			}
			rng := rand.New(rand.NewPCG(11, 12))
			const rounds = 8000 // so that chance alone does not decide
			alone := w.live(NewController(), rng, []*Record{{}}, rounds)
			w.sources = func(_ int, rng *rand.Rand) Sources {
				if rng.IntN(2) == 0 {
					return Computed.only()
				}
				return Computed.only().With(Source(1 + rng.IntN(numSources-1)))
			}
			both := w.live(NewController(), rng, []*Record{{}}, rounds)
			gain := both.rate() / alone.rate()
			t.Logf("%.3f times the head alone, %d of %d rounds copied", gain, both.copies, rounds)
			if gain < c.least || both.copies > c.most {
				t.Errorf("%.3f times the head alone, want %v; %d of %d rounds copied, want at most %d", gain, c.least, both.copies, rounds, c.most)
			}
		})
	}
}

// TestControllerIsSaneWhateverItHears feeds it nonsense.
func TestControllerIsSaneWhateverItHears(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	durations := []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, time.Hour, math.MaxInt64}
	for range 120 {
		c := NewController()
		records := make([]*Record, 1+rng.IntN(20))
		for i := range records {
			records[i] = &Record{Fixed: Depth(rng.IntN(MaxDepth+2) - 1)}
		}
		for range 100 {
			batch, limits := make([]Run, len(records)), make([]int, len(records))
			depths := make([]int, rng.IntN(4))
			for i := range batch {
				limits[i] = rng.IntN(14) - 2
				batch[i] = Run{Depth: limits[i], Sources: Sources(rng.IntN(1 << numSources))}
			}
			c.Choose(batch, records)
			for i, r := range batch {
				longest := MaxDepth
				if r.Source != Computed {
					longest = MaxCopy
				}
				if r.Depth < 0 || r.Depth > max(min(limits[i], longest), 0) || r.Depth > 0 && !r.Sources.Has(r.Source) {
					t.Fatalf("depth %d of source %d within %d, offers %b", r.Depth, r.Source, limits[i], r.Sources)
				}
				if f, ok := records[i].Fixed.Fixed(); ok && r.Sources != 0 && r.Depth != max(min(f, limits[i]), 0) {
					t.Fatalf("depth %d, fixed %d within %d", r.Depth, f, limits[i])
				}
				accepted := rng.IntN(r.Depth + 1)
				c.Report(records[i], Outcome{
					Drafted: r.Depth, Accepted: accepted, Tokens: 1 + accepted, Batch: len(batch), Verify: durations[rng.IntN(len(durations))],
				})
			}
			for i := range depths {
				depths[i] = rng.IntN(MaxDepth + 3)
			}
			c.ObservePass(rng.IntN(300), durations[rng.IntN(len(durations))])
			c.ObserveDraft(Computed, depths, 0, durations[rng.IntN(len(durations))])
		}
		for _, r := range records {
			c.Settle(&r.Stats)
			s := &r.Stats
			numbers := []float64{s.Beta, s.Delta, s.Speedup(), s.MeanDepth()}
			for d := range MaxDepth + 1 {
				numbers = append(numbers, c.Rate(r, d))
			}
			for _, x := range numbers {
				if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
					t.Fatalf("%v in %+v", numbers, s)
				}
			}
		}
	}
}

// TestControllerStartsPlain checks that nothing is drafted before it is known what decoding
// without drafts takes, and that drafts follow after a trial of plain decoding at the latest.
func TestControllerStartsPlain(t *testing.T) {
	c, r := NewController(), &Record{}
	batch := []Run{{Depth: MaxDepth, Sources: Computed.only()}}
	if c.Choose(batch, []*Record{r}); batch[0].Depth != 0 {
		t.Errorf("depth %d before anything is known", batch[0].Depth)
	}
	for range 4 {
		c.ObservePass(1, time.Millisecond)
	}
	drafted := 0
	for range trialRounds + 1 {
		batch[0].Depth = MaxDepth
		c.Choose(batch, []*Record{r})
		drafted += batch[0].Depth
	}
	if drafted == 0 {
		t.Error("no draft is ever tried")
	}
}

// TestSlownessAfterDraftsIsNotACost has the first four plain passes after drafts take 1.3 times as long as others: once longer
// plain times have shown that, shorter ones say the same of plain decoding.
func TestSlownessAfterDraftsIsNotACost(t *testing.T) {
	c, records := NewController(), []*Record{{}, {}}
	c.Choose([]Run{{}, {}}, records)
	turn := func(plain int) {
		for range 6 {
			c.ObservePass(6, 14*time.Millisecond)
		}
		for i := range plain {
			took := 10 * time.Millisecond
			if i < 4 {
				took = 13 * time.Millisecond
			}
			c.ObservePass(2, took)
		}
	}
	for range 10 {
		turn(20)
	}
	for range 40 {
		turn(2)
	}
	if x := c.Pass(6) / c.Pass(2); math.Abs(x/1.4-1) > 0.04 {
		t.Errorf("drafts cost %.3f plain passes, want 1.4", x)
	}
}

// TestControllerForgivesTheFirstTime has everything take much longer when it is done for the
// first time.
func TestControllerForgivesTheFirstTime(t *testing.T) {
	asked := map[[2]int]int{} // twice in each round
	usual := head(0.1, 0.02)
	w := world{verify: linear(0.02), accepts: alike(0.8), draft: func(deepest, runs int) float64 {
		at := [2]int{deepest, runs}
		if asked[at]++; asked[at] <= 2 && deepest > 0 {
			return 20 * usual(deepest, runs)
		}
		return usual(deepest, runs)
	}}
	records := []*Record{{}, {}, {}, {}}
	c, rng := NewController(), rand.New(rand.NewPCG(1, 2))
	w.live(c, rng, records, 500)
	got := w.live(c, rng, records, 500)
	w.draft = usual
	if best := w.expected(3, 3, 3, 3); got.rate() < 0.9*best {
		t.Errorf("%.3f tokens per ms, want about %.3f; depths %v", got.rate(), best, got.depths)
	}
}

// TestControllerDoubtsWhatItMeasuredLongAgo has sequences with fixed depths run at different
// moments of a machine before one comes that is to find its depth.
func TestControllerDoubtsWhatItMeasuredLongAgo(t *testing.T) {
	quiet := world{verify: linear(0.12), draft: head(0.15, 0.02), accepts: alike(0.75), noise: 0.1}
	best := 0
	for d := range MaxDepth + 1 {
		if quiet.expected(d) > quiet.expected(best) {
			best = d
		}
	}
	mean := 0.0
	const seeds = 20
	for seed := range uint64(seeds) {
		c, rng := NewController(), rand.New(rand.NewPCG(seed, 4))
		for depth := range 4 {
			for _, factor := range []float64{1 + 0.5*float64(depth), 1} {
				w := quiet
				w.verify = func(rows int) float64 { return factor * quiet.verify(rows) }
				w.draft = func(deepest, runs int) float64 { return factor * quiet.draft(deepest, runs) }
				w.live(c, rng, []*Record{{Fixed: FixedDepth(depth)}}, 100)
			}
		}
		got := quiet.live(c, rng, []*Record{{}}, 400)
		mean += got.rate() / quiet.expected(best) / seeds
	}
	if mean < 0.76 {
		t.Errorf("%.3f of the rate at depth %d", mean, best)
	}
}

// TestControllerExploresBesideFixedDepths has a sequence of a fixed depth in the batch: the
// other one still finds its depth.
func TestControllerExploresBesideFixedDepths(t *testing.T) {
	w := &world{verify: linear(0.05), draft: head(0.05, 0.02), accepts: alike(0.8), noise: 0.1}
	best := 0.0
	for d := range MaxDepth + 1 {
		best = max(best, w.expected(d, 2))
	}
	const seeds = 12
	mean := 0.0
	for seed := range uint64(seeds) {
		c, records := NewController(), []*Record{{}, {Fixed: 2}}
		rng := rand.New(rand.NewPCG(17+seed, 18))
		w.live(c, rng, records, 300)
		late := w.live(c, rng, records, 1000)
		if mean += late.rate() / best / seeds; late.rate() < 0.94*best || math.Abs(late.mean[1]-2) > 1e-9 {
			t.Errorf("%.3f of the best rate, depths %v, mean %.2f", late.rate()/best, late.depths, late.mean)
		}
	}
	if mean < 0.98 {
		t.Errorf("%.3f of the best rate on average", mean)
	}
}

func TestChooseDoesNotAllocate(t *testing.T) {
	for _, n := range []int{1, 16} {
		w := &world{verify: linear(0.02), draft: head(0.1, 0.05), accepts: alike(0.8)}
		c := NewController()
		records, batch := make([]*Record, n), make([]Run, n)
		for i := range records {
			records[i] = &Record{}
		}
		w.live(c, rand.New(rand.NewPCG(1, 2)), records, 10)
		if got := testing.AllocsPerRun(200, func() {
			for i := range batch {
				batch[i] = Run{Depth: MaxDepth, Sources: Computed.only().With(CopyOf4)}
			}
			c.Choose(batch, records)
			for i, r := range records {
				c.Report(r, Outcome{Drafted: batch[i].Depth, Tokens: 1})
			}
		}); got != 0 {
			t.Errorf("%d runs: %v allocations", n, got)
		}
	}
}

// BenchmarkChoose is what the choice adds to every round.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("runs=%d", n), func(b *testing.B) {
			w := &world{verify: linear(0.02), draft: head(0.1, 0.05), accepts: alike(0.8)}
			c := NewController()
			records, batch := make([]*Record, n), make([]Run, n)
			for i := range records {
				records[i] = &Record{}
			}
			w.live(c, rand.New(rand.NewPCG(1, 2)), records, 100)
			for b.Loop() {
				for i := range batch {
					batch[i] = Run{Depth: MaxDepth, Sources: Computed.only().With(CopyOf4)}
				}
				c.Choose(batch, records)
			}
		})
	}
}

// TestControllerLeavesBatchesPlain has batches in which drafts do not pay, on a machine that is
// noisy and changes its speed: whatever seems cheap by chance, little is lost. Where they pay they
// are made.
func TestControllerLeavesBatchesPlain(t *testing.T) {
	tiny := func(rows int) float64 { return 10 + 0.9*float64(rows-8) }
	large := func(rows int) float64 { return 10 + 0.4*float64(rows-8) }
	between := func(rows int) float64 { return 10 + 0.6*float64(rows-8) }
	draft := func(deepest, runs int) float64 { return max(float64(deepest)*(1.5+0.2*float64(runs)), 0.1) }
	cheap := func(deepest, runs int) float64 { return max(float64(deepest)*(0.5+0.02*float64(runs)), 0.1) }
	for name, c := range map[string]struct {
		world
		least float64 // of plain decoding's rate
	}{
		"a fair head":   {world{verify: tiny, draft: draft, accepts: alike(0.68, 0.6, 0.55)}, 0.99},
		"a good head":   {world{verify: tiny, draft: draft, accepts: alike(0.8, 0.75, 0.7)}, 0.99},
		"about even":    {world{verify: between, draft: draft, accepts: alike(0.78, 0.7, 0.65)}, 0.99},
		"drafts do pay": {world{verify: large, draft: cheap, accepts: alike(0.8, 0.75, 0.7)}, 1.28},
	} {
		t.Run(name, func(t *testing.T) {
			const seeds, answers = 8, 16
			mean, least := 0.0, 2.0
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 19))
				control, quiet, speed := NewController(), c.world, 1.0
				w := quiet
				w.noise = 0.1
				w.verify = func(rows int) float64 { return speed * quiet.verify(rows) }
				w.draft = func(deepest, runs int) float64 { return speed * quiet.draft(deepest, runs) }
				tokens, ms := 0.0, 0.0
				for range answers {
					records := make([]*Record, 8)
					for i := range records {
						records[i] = &Record{}
					}
					for range 3 {
						speed = math.Exp(0.2 * rng.NormFloat64())
						part := w.live(control, rng, records, 32)
						tokens, ms = tokens+part.tokens, ms+part.ms/speed
					}
				}
				rate := tokens / ms / quiet.expected(0, 0, 0, 0, 0, 0, 0, 0)
				mean, least = mean+rate/seeds, min(least, rate)
			}
			t.Logf("%.3f of plain decoding, %.3f at least; at depth 1 %.3f", mean, least,
				c.expected(1, 1, 1, 1, 1, 1, 1, 1)/c.expected(0, 0, 0, 0, 0, 0, 0, 0))
			if mean < c.least || least < 0.97 {
				t.Errorf("%.3f of plain decoding, want %.3f; %.3f at least", mean, c.least, least)
			}
		})
	}
}

package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCalibrationLearns has a head whose probabilities are too high: the chances become what is accepted, and one that
// is not a number is a chance too.
func TestCalibrationLearns(t *testing.T) {
	var c calibration
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		p := rng.Float32()
		c.count(p, rng.Float32() < p*p)
	}
	for _, p := range []float32{0.15, 0.4, 0.6, 0.8, 0.93} {
		if got := c.chance(p, 0.5); math.Abs(got-float64(p*p)) > 0.15 {
			t.Errorf("the chance of a draft with probability %v is %.3f, want %.3f", p, got, p*p)
		}
	}
	if got := new(calibration).chance(0.1, 0.6); got != 0.6 {
		t.Errorf("%v where nothing is known, want the mean", got)
	}
	last := -1
	for _, p := range []float32{float32(math.Inf(-1)), -1, 0, 1e-5, 0.01, 0.1, 0.5, 0.9, 0.99, 0.99999, 1, 2, float32(math.Inf(1))} {
		if b := bin(p); b < last || b >= bins {
			t.Errorf("bin %d of probability %v after %d", b, p, last)
		} else {
			last = b
		}
	}
	if b := bin(float32(math.NaN())); b < 0 || b >= bins {
		t.Errorf("bin %d", b)
	}
}

// confident is a controller that knows a machine and a head whose probabilities are true.
func confident(row, draft float64) *Controller {
	c := informed(func(rows int) float64 { return 1 + row*float64(rows-1) }, func(depth, _ int) float64 { return draft * float64(depth) })
	rng := rand.New(rand.NewPCG(3, 4))
	for range 4000 {
		p := rng.Float32()
		c.calibrations[0].count(p, rng.Float32() < p)
	}
	return c
}

// chosen is a batch of runs for which c has chosen drafts, in a round in which they may be cut.
func chosen(c *Controller, records ...*Record) []Run {
	batch := make([]Run, len(records))
	for i := range batch {
		batch[i] = Run{Depth: MaxDepth, Sources: Computed.only()}
	}
	c.left = 1
	c.Choose(batch, records)
	return batch
}

// TestTrimKeepsTheMostLikely has rows that are worth about 0.4 tokens: drafts with a lower chance are cut, of whichever
// run. Those of a fixed depth stay.
func TestTrimKeepsTheMostLikely(t *testing.T) {
	c := confident(0.3, 0.02)
	records := []*Record{{}, {}, {Fixed: 3}}
	batch := chosen(c, records...)
	drafts := []Draft{
		{Tokens: []int32{1, 2}, Probs: []float32{0.05, 0.97}},
		{Tokens: []int32{1, 2, 3, 4}, Probs: []float32{0.97, 0.97, 0.05, 0.99}},
		{Tokens: []int32{1, 2, 3}, Probs: []float32{0.05, 0.05, 0.05}},
	}
	c.Trim(batch, records, drafts)
	for i, want := range []int{0, 2, 3} {
		if got := drafts[i]; len(got.Tokens) != want || len(got.Probs) != want {
			t.Errorf("run %d keeps %d drafts, want %d", i, len(got.Tokens), want)
		}
	}
}

// TestTrimFillsTheCheapRows has passes of up to eight rows cost the same: as many likely drafts are kept as fit beside the
// rows of a fixed depth, those of known tokens and one of each run.
func TestTrimFillsTheCheapRows(t *testing.T) {
	likely := func(n int) Draft {
		return Draft{Tokens: make([]int32, n), Probs: slices.Repeat([]float32{0.97}, n)}
	}
	c := confident(0, 0)
	c.Model = informed(func(rows int) float64 { return 1 + float64(max(rows-8, 0)) }, func(int, int) float64 { return 0 }).Model
	for fixed := range 4 {
		for known := range 3 {
			records := []*Record{{Fixed: FixedDepth(fixed)}, {}}
			batch := []Run{{Depth: MaxDepth, Sources: Computed.only()}, {Depth: MaxDepth, Known: known, Sources: Computed.only()}}
			c.left = 1
			c.Choose(batch, records)
			drafts := []Draft{likely(fixed), likely(MaxDepth)}
			if c.Trim(batch, records, drafts); len(drafts[0].Tokens) != fixed || len(drafts[1].Tokens) != 6-fixed {
				t.Errorf("%d and %d drafts are kept, want %d and %d", len(drafts[0].Tokens), len(drafts[1].Tokens), fixed, 6-fixed)
			}
		}
	}
}

// TestTrimKeepsSizesThatAreEstimated has drafts of eight runs with random probabilities: the pass has one of the sizes whose
// costs are estimated, or all drafts are kept.
func TestTrimKeepsSizesThatAreEstimated(t *testing.T) {
	rng, sizes := rand.New(rand.NewPCG(41, 42)), map[int]int{}
	for range 40 {
		c := confident(0.1, 0.02)
		batch := chosen(c, slices.Repeat([]*Record{{}}, 8)...)
		drafts := make([]Draft, len(batch))
		all, rows := len(batch), len(batch)
		for i := range drafts {
			drafts[i].Tokens = make([]int32, 1+rng.IntN(4))
			for range drafts[i].Tokens {
				drafts[i].Probs = append(drafts[i].Probs, rng.Float32())
			}
			all += len(drafts[i].Tokens)
		}
		c.Trim(batch, slices.Repeat([]*Record{{}}, 8), drafts)
		for _, d := range drafts {
			rows += len(d.Tokens)
		}
		if sizes[rows]++; !c.Estimated(rows) && rows != all {
			t.Errorf("%d of %d rows are kept", rows, all)
		}
	}
	if len(sizes) < 3 {
		t.Errorf("passes of %v rows: too few to tell", sizes)
	}
}

// TestTrimKeepsAll of a trial, and of drafts without probabilities. Before a trial, and after it, drafts are cut.
func TestTrimKeepsAll(t *testing.T) {
	for name, change := range map[string]func(c *Controller, d *Draft){
		"a long trial":            func(c *Controller, _ *Draft) { c.left = settling + 2*trialRounds - 1 },
		"the end of a trial":      func(c *Controller, _ *Draft) { c.left = trialRounds },
		"before a trial, cut":     func(c *Controller, _ *Draft) { c.left = -1 },
		"after a trial, cut":      func(c *Controller, _ *Draft) { c.left = trialRounds - 1 },
		"no probabilities":        func(_ *Controller, d *Draft) { d.Tokens, d.Probs = make([]int32, MaxDepth), nil },
		"none of these, cut":      func(*Controller, *Draft) {},
		"tokens that must follow": func(_ *Controller, d *Draft) { d.Vocab = -1 },
	} {
		c := confident(0.3, 0.02)
		records := []*Record{{}}
		batch := chosen(c, records...)
		drafts := []Draft{{Tokens: []int32{1, 2}, Probs: []float32{0.02, 0.02}}}
		if change(c, &drafts[0]); drafts[0].Vocab < 0 {
			batch[0] = Run{Depth: MaxDepth, Known: 2, Sources: Computed.only()}
			c.left = 1
			c.Choose(batch, records)
			c.left = 1
		}
		want := len(drafts[0].Tokens)
		if strings.HasSuffix(name, ", cut") {
			want = 0
		}
		if c.Trim(batch, records, drafts); len(drafts[0].Tokens) != want {
			t.Errorf("%s: %d drafts are kept, want %d", name, len(drafts[0].Tokens), want)
		}
	}
}

// TestMoreEndsUnlikelyDrafts asks for more after likely and after unlikely drafts.
func TestMoreEndsUnlikelyDrafts(t *testing.T) {
	c := confident(0.1, 0.05)
	batch := chosen(c, &Record{})
	if batch[0].Depth == 0 || batch[0].More == nil {
		t.Fatalf("%+v", batch[0])
	}
	for _, x := range []struct {
		probs []float32
		want  bool
	}{
		{[]float32{0.97}, true}, {[]float32{0.97, 0.97}, true}, {[]float32{0.04}, false}, {[]float32{0.97, 0.97, 0.04}, false},
	} {
		if got := batch[0].More(x.probs); got != x.want {
			t.Errorf("after %v: %v", x.probs, got)
		}
	}
	if batch = chosen(c, &Record{}); batch[0].Depth != MaxDepth {
		t.Errorf("depth %d for a drafter that asks before each step, want %d", batch[0].Depth, MaxDepth)
	}
	if batch = chosen(c, &Record{Fixed: 2}); batch[0].Depth != 2 || batch[0].More != nil {
		t.Errorf("%+v for a fixed depth", batch[0])
	}
}

// TestSelectionIsSaneWhateverItHears gives drafts of any length and probability.
func TestSelectionIsSaneWhateverItHears(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	odd := []float32{float32(math.NaN()), -1, 0, 0.3, 0.9, 1, 7, float32(math.Inf(1))}
	for range 100 {
		c, records := NewController(), make([]*Record, 1+rng.IntN(6))
		c.Blocks[rng.IntN(2)] = rng.IntN(MaxCopy + 9)
		for i := range records {
			records[i] = &Record{Fixed: Depth(max(rng.IntN(6)-4, -1))}
		}
		for range 60 {
			batch, drafts, before := make([]Run, len(records)), make([]Draft, len(records)), make([]int, len(records))
			for i := range batch {
				known := rng.IntN(3)
				batch[i] = Run{Depth: known + rng.IntN(40), Known: known, Sources: Sources(rng.IntN(1 << numSources))}
			}
			c.Choose(batch, records)
			for i := range batch {
				d := &drafts[i]
				for len(d.Tokens) < batch[i].Depth && (batch[i].More == nil || len(d.Tokens) == 0 || batch[i].More(d.Probs)) {
					d.Tokens = append(d.Tokens, 1)
					if len(d.Probs) < MaxDepth && rng.IntN(9) > 0 {
						d.Probs = append(d.Probs, odd[rng.IntN(len(odd))])
					}
				}
				before[i] = len(d.Tokens)
			}
			c.Trim(batch, records, drafts)
			rows := 0
			for i, d := range drafts {
				n := len(d.Tokens)
				if rows += 1 + n; n > before[i] || n < min(batch[i].Known, before[i]) || records[i].Fixed != DepthAuto && n != before[i] {
					t.Fatalf("%d of %d drafts are kept of %+v", n, before[i], batch[i])
				}
				accepted := rng.IntN(n + 1)
				c.Report(records[i], Outcome{Drafted: n, Accepted: accepted, Tokens: 1 + accepted})
			}
			c.ObservePass(rows, time.Duration(rows)*time.Millisecond)
		}
		if math.IsNaN(c.price) || slices.ContainsFunc(slices.Concat(c.least[0][:], c.least[1][:]), math.IsNaN) {
			t.Fatalf("price %v, least %v", c.price, c.least)
		}
	}
}

// TestStepsAreShared has three runs: a step that all of them make is cheaper for each than one that a single run asks for.
func TestStepsAreShared(t *testing.T) {
	c := confident(0.1, 0.1)
	batch := chosen(c, &Record{}, &Record{}, &Record{})
	if batch[0].Depth == 0 || c.least[0][0] <= 0 || c.least[0][0] > 0.8*c.least[0][MaxDepth-1] {
		t.Errorf("depth %d, least gains %.3f", batch[0].Depth, c.least)
	}
}

package sampling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/topk"
	"github.com/foretoken/foretoken/sample"
)

// part is a device's answer for a row: the logits of some ids, and all logits down to the best-th highest
// maximum of blocks.
func part(row []float32, n Need, best int) Row {
	row = row[:n.Vocab]
	r := Row{Low: -math.MaxFloat32, Also: n.Also}
	for _, id := range n.Also {
		r.AlsoLogits = append(r.AlsoLogits, row[id])
	}
	maxima := topk.Maxima(nil, row)
	slices.Sort(maxima)
	if at := len(maxima) - best; at >= 0 {
		r.Low = min(max(maxima[at], r.Low), math.MaxFloat32)
	}
	for id, z := range row {
		if z >= r.Low {
			r.IDs, r.Logits = append(r.IDs, int32(id)), append(r.Logits, z)
		}
	}
	return r
}

// sameDist fails unless two Dists hold the same ids with the same bits.
func sameDist(t *testing.T, got, want Dist) {
	t.Helper()
	a, b := got.open(), want.open()
	if a.pos != b.pos || a.len() != b.len() {
		t.Fatalf("%d ids at %d, want %d at %d", a.len(), a.pos, b.len(), b.pos)
	}
	for i := range a.len() {
		if a.tokenAt(i) != b.tokenAt(i) || a.probAt(i) != b.probAt(i) || math.Float32bits(a.z[i]) != math.Float32bits(b.z[i]) {
			t.Fatalf("entry %d is %d with %v and %v, want %d with %v and %v", i, a.tokenAt(i), a.probAt(i), a.z[i], b.tokenAt(i), b.probAt(i), b.z[i])
		}
	}
}

// TestPartOfARowIsEnough compares the result of a part of a row with that of the whole row, for
// random chains, masks and rows with ties, NaN and infinities, and for parts that are smaller
// than requested: the same bits, or the answer that more is needed.
func TestPartOfARowIsEnough(t *testing.T) {
	cases := 3000
	if testing.Short() {
		cases = 600
	}
	asked, enough, smaller := 0, 0, 0
	for i := range cases {
		r := rand.New(rand.NewPCG(41, uint64(i)))
		vocab := 100 + r.IntN(4000)
		o := randomOptions(r, vocab)
		if r.IntN(2) == 0 {
			o.TopK = 1 + r.IntN(12)
		}
		if r.IntN(3) == 0 {
			o.Vocab, o.LogitBias, o.XTCExempt = vocab-r.IntN(50), nil, nil
		}
		if r.IntN(3) == 0 {
			mask := randomMask(r, vocab, []int{1, 2, 50}[r.IntN(3)])
			o.Constraint = func() sample.Constraint { return fixed(mask) }
		}
		prompt, ahead := make([]int32, r.IntN(20)), make([]int32, r.IntN(4))
		for _, list := range [][]int32{prompt, ahead} {
			for j := range list {
				list[j] = int32(r.IntN(vocab + 2))
			}
		}
		whole, parted := newSampler(t, o, prompt...), newSampler(t, o, prompt...)
		for range 2 {
			row := oddRow(r, vocab)
			for range r.IntN(3) * r.IntN(2) {
				row[r.IntN(vocab)] = []float32{float32(math.Inf(1)), math.MaxFloat32}[r.IntN(2)]
			}
			need := parted.Need(vocab, ahead, []int32{7})
			if need.Whole {
				continue
			}
			want := whole.Dist(row, ahead)
			asked++
			for _, best := range []int{need.Best, 1 + r.IntN(need.Best)} {
				got, ok := parted.DistOf(part(row, need, best), ahead)
				if !ok {
					continue
				}
				sameDist(t, got, want)
				if x, y := parted.Draw(got), whole.Draw(want); x != y {
					t.Fatalf("case %d: drew %d, want %d", i, x, y)
				}
				if best == need.Best {
					enough++
				} else {
					smaller++
				}
			}
			id := int32(r.IntN(vocab))
			whole.Accept(id)
			parted.Accept(id)
		}
	}
	if asked < cases/4 || enough < asked*2/3 || smaller < asked/10 {
		t.Errorf("of %d cases %d asked for a part; that was enough for %d, and less than that for %d", cases, asked, enough, smaller)
	}
}

// TestNeedByOptions lists the chains that need a part of a row and the chains that need all of it.
func TestNeedByOptions(t *testing.T) {
	long := make([]int32, 5000)
	for i := range long {
		long[i] = int32(i)
	}
	open := func() sample.Constraint { return fixed(nil) }
	for name, c := range map[string]struct {
		options sample.Options
		prompt  []int32
		best    int // 0: the whole row
		also    int
	}{
		"greedy":             {best: 1},
		"top-k":              {options: sample.Options{Temperature: 1, TopK: 20}, best: 20},
		"all filters":        {options: sample.Options{Temperature: 1, TopK: 20, TopP: 0.9, MinP: 0.1, XTCProbability: 1, XTCThreshold: 0.1}, best: 20},
		"min-p":              {options: sample.Options{Temperature: 1, MinP: 0.1}, best: nearBest},
		"bias":               {options: sample.Options{LogitBias: map[int32]float32{9: 1, 2: 1}}, best: 3, also: 2},
		"penalties":          {options: sample.Options{Temperature: 1, TopK: 5, RepetitionPenalty: 1.1}, prompt: []int32{4, 3, 4}, best: 8, also: 3},
		"grammar":            {options: sample.Options{Temperature: 1, TopK: 20, Constraint: open}, best: 70},
		"temperature":        {options: sample.Options{Temperature: 1}},
		"top-p":              {options: sample.Options{Temperature: 1, TopP: 0.9}},
		"top-p and min-p":    {options: sample.Options{Temperature: 1, TopP: 0.9, MinP: 0.1}},
		"xtc":                {options: sample.Options{Temperature: 1, XTCProbability: 1, XTCThreshold: 0.1}},
		"a large k":          {options: sample.Options{Temperature: 1, TopK: 200_000}},
		"a k of all blocks":  {options: sample.Options{Temperature: 1, TopK: benchVocab / topk.Block}, best: benchVocab / topk.Block},
		"a k of more":        {options: sample.Options{Temperature: 1, TopK: benchVocab/topk.Block + 1}},
		"many ids penalized": {options: sample.Options{RepetitionPenalty: 1.1}, prompt: long},
	} {
		s := newSampler(t, c.options, c.prompt...)
		need := s.Need(benchVocab, []int32{77}, nil)
		if need.Whole != (c.best == 0) || need.Best != c.best || len(need.Also) != c.also {
			t.Errorf("%s: %+v, want the best %d and %d others", name, need, c.best, c.also)
			continue
		}
		row := benchRows[0].row
		got, ok := s.DistOf(Row{All: row}, []int32{77})
		if !need.Whole {
			got, ok = s.DistOf(part(row, need, need.Best), []int32{77})
		}
		if !ok {
			t.Errorf("%s: not enough", name)
			continue
		}
		sameDist(t, got, s.Dist(row, []int32{77}))
	}
}

// TestNeedAsksForFewIDs counts the ids whose logits bias and penalties change, at the number from
// which listing them is not worth it. An id that the row does not have is not among them, nor one
// that has left the window.
func TestNeedAsksForFewIDs(t *testing.T) {
	const n = 10 * alsoShare
	first := func(count int32) (ids []int32, biases map[int32]float32) {
		biases = map[int32]float32{n: 1}
		for id := range count {
			ids, biases[id] = append(ids, id), 1
		}
		return ids, biases
	}
	ten, tenBiases := first(10)
	eleven, elevenBiases := first(11)
	window := newSampler(t, sample.Options{RepetitionPenalty: 2, RepetitionWindow: 3}, 1, 2, 3, 4, 5)
	window.Accept(6)
	for name, c := range map[string]struct {
		s    *Sampler
		also []int32 // nil: the whole row
	}{
		"biases":       {newSampler(t, sample.Options{LogitBias: tenBiases}), ten},
		"many biases":  {newSampler(t, sample.Options{LogitBias: elevenBiases}), nil},
		"penalty":      {newSampler(t, sample.Options{RepetitionPenalty: 2}, append(ten, n)...), ten},
		"wide penalty": {newSampler(t, sample.Options{RepetitionPenalty: 2}, eleven...), nil},
		"window":       {window, []int32{4, 5, 6}},
	} {
		if need := c.s.Need(n, nil, nil); need.Whole != (c.also == nil) || !slices.Equal(need.Also, c.also) {
			t.Errorf("%s: %+v, want %d", name, need, c.also)
		}
		row := noiseRow(n, 3) // where an id that it does not have changes nothing
		if d := c.s.Dist(row, nil); d.Prob(n) != 0 {
			t.Errorf("%s: id %d has probability %v", name, n, d.Prob(n))
		}
	}
}

// TestPartOfMinPIsExact has rows in which the lowest known logit is the last one that min-p keeps, or one
// float32 below it.
func TestPartOfMinPIsExact(t *testing.T) {
	s := newSampler(t, sample.Options{Temperature: 1, MinP: 0.9})
	last := newScale(0, 1).lowest(s.minLevel + 1)
	row := slices.Repeat([]float32{-5}, 3*topk.Block)
	row[0] = 0
	for lowest, want := range map[float32]bool{last: true, math.Nextafter32(last, 0): false} {
		row[topk.Block], row[2*topk.Block] = lowest, last
		known := part(row, Need{Vocab: len(row)}, 2)
		if known.Low != lowest {
			t.Fatalf("the row is known down to %v, want %v", known.Low, lowest)
		}
		got, ok := s.DistOf(known, nil)
		if ok != want {
			t.Errorf("known down to %v, kept down to %v: enough is %t", lowest, last, ok)
		}
		if ok {
			sameDist(t, got, s.Dist(row, nil))
		}
	}
}

func TestPartAllocatesNothing(t *testing.T) {
	row := noiseRow(20_000, 40)
	for _, o := range []sample.Options{
		{},
		{Temperature: 0.8, TopK: 20, TopP: 0.9},
		{Temperature: 0.8, TopK: 20, RepetitionPenalty: 1.1, LogitBias: map[int32]float32{3: 1}},
	} {
		s := newSampler(t, o, 1, 2, 3)
		var buf []int32
		need := s.Need(len(row), nil, buf)
		buf = slices.Grow(buf, 100)
		p := part(row, need, need.Best)
		round := func() {
			s.Need(len(row), []int32{5, 6}, buf)
			d, ok := s.DistOf(p, nil)
			if !ok || s.Draw(d) < 0 {
				t.Fatal("nothing was drawn")
			}
			s.release()
		}
		round()
		if n := testing.AllocsPerRun(20, round); n > 0 {
			t.Errorf("%+v: %v allocations", o, n)
		}
	}
}

// TestCertaintyOfPartAndWhole compares the certainty of draws from a part of a row, with the sum of
// all of it, with that from the whole row and with a softmax.
func TestCertaintyOfPartAndWhole(t *testing.T) {
	for i := range 200 {
		r := rand.New(rand.NewPCG(43, uint64(i)))
		row := make([]float32, 500)
		sum, top := 0.0, math.Inf(-1)
		for j := range row {
			row[j] = float32(3 * r.NormFloat64())
			top = max(top, float64(row[j]))
		}
		for _, z := range row {
			sum += math.Exp(float64(z) - top)
		}
		o := sample.Options{}
		if i%2 == 1 {
			o.LogitBias = map[int32]float32{int32(i): 20} // the draw, whatever the row says
		}
		s := newSampler(t, o)
		need := s.Need(len(row), nil, nil)
		if need.Whole || !need.Sum {
			t.Fatalf("needs %+v", need)
		}
		known := part(row, need, need.Best)
		d, ok := s.DistOf(known, nil)
		if !ok {
			t.Fatal("more is needed")
		}
		id := s.Draw(d)
		if got := s.Certainty(d, known, id); got != 0 {
			t.Errorf("case %d: certainty %v without a sum", i, got)
		}
		known.Sum = float32(sum)
		want := math.Exp(float64(row[id])-top) / sum
		for what, got := range map[string]float32{"part": s.Certainty(d, known, id), "whole": s.Certainty(d, Row{All: row}, id)} {
			if math.Abs(float64(got)-want) > 1e-5*want {
				t.Errorf("case %d: certainty of the %s %v, want %v", i, what, got, want)
			}
		}
	}
	s := newSampler(t, sample.Options{Temperature: 1, TopK: 2})
	row := []float32{1, 2, 3}
	if d := s.Dist(row, nil); s.Certainty(d, Row{All: row}, 2) != d.Prob(2) {
		t.Errorf("certainty %v, want the probability %v", s.Certainty(d, Row{All: row}, 2), d.Prob(2))
	}
}

// TestFewCandidatesAreEnough compares a row that lists all its numbers with the whole row, which has minus infinity
// elsewhere, for random chains.
func TestFewCandidatesAreEnough(t *testing.T) {
	for i := range 500 {
		r := rand.New(rand.NewPCG(43, uint64(i)))
		vocab := 100 + r.IntN(1000)
		o := randomOptions(r, vocab)
		o.Vocab = 0
		ahead := make([]int32, r.IntN(4))
		row := slices.Repeat([]float32{float32(math.Inf(-1))}, vocab)
		few := Row{Low: -math.MaxFloat32}
		for id := range vocab {
			if r.IntN(40) == 0 {
				row[id] = float32(r.NormFloat64() * 4)
				few.IDs, few.Logits = append(few.IDs, int32(id)), append(few.Logits, row[id])
			}
		}
		for j := range ahead {
			ahead[j] = int32(r.IntN(vocab))
			if len(few.IDs) > 0 && r.IntN(2) == 0 {
				ahead[j] = few.IDs[r.IntN(len(few.IDs))]
			}
		}
		few.Also, few.AlsoLogits = few.IDs, few.Logits
		whole, listed := newSampler(t, o), newSampler(t, o)
		want := whole.Dist(row, ahead)
		got, ok := listed.DistOf(few, ahead)
		if !ok {
			t.Fatalf("case %d: %d candidates are not enough", i, len(few.IDs))
		}
		if x, y := listed.Draw(got), whole.Draw(want); x != y {
			t.Fatalf("case %d: drew %d of %d candidates, want %d", i, x, len(few.IDs), y)
		}
		for _, id := range few.IDs {
			if x, y := got.Prob(id), want.Prob(id); x != y {
				t.Fatalf("case %d: candidate %d has probability %v, want %v", i, id, x, y)
			}
		}
	}
}
